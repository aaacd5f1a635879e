import re

from reports.cards import document_cards
from reports.markdown import code, escape, render_markdown
from reports.view import StudyView


def test_every_card_has_a_heading(view: StudyView) -> None:
    text = render_markdown(view)
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == [c.title for c in document_cards(view)]
    assert "](figures/phase.svg)" in text


def test_tables_have_equal_rows(view: StudyView, hostile: StudyView) -> None:
    for study in (view, hostile):
        for table in re.findall(r"(?:^\|.*\n)+", render_markdown(study), flags=re.MULTILINE):
            cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(cells) == 1


def test_escape() -> None:
    assert escape("a|b <c> *d* _e_ [f](g) `h`") == r"a\|b \<c\> \*d\* \_e\_ \[f\](g) \`h\`"
    assert escape("line\nbreak") == r"line\\nbreak"
    assert escape("1. not a list") == r"1\. not a list" or escape("1. x").startswith("\\")
    assert escape("https://example.org") == r"https\://example.org"


def test_code_is_fenced_longer_than_its_backticks() -> None:
    assert code("plain") == "`plain`"
    assert code("a``b") == "```a``b```"
    assert code("`x") == "`` `x ``"


def test_hostile_names_are_text(hostile: StudyView) -> None:
    text = render_markdown(hostile)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<script", outside)
    assert all(ord(c) >= 32 or c == "\n" for c in text)
