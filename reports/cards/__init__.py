"""The content of a report, written once: a `StudyView` in, plain cards out."""

from reports.cards.assembly import document_cards, terminal_cards
from reports.cards.blocks import Block, Card
from reports.cards.origins import LabelledNumber, labelled_numbers

__all__ = ["Block", "Card", "LabelledNumber", "document_cards", "labelled_numbers", "terminal_cards"]
