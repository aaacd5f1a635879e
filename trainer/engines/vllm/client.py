"""Talks to vLLM's server over HTTP: tokens in, tokens out, and the control of weight updates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

from trainer.errors import EnvironmentFailedError


class Client(HTTPVLLMWeightSyncClient):
    """vLLM's own client of the weight updates, over a Unix socket or a port, with our errors.

    The trainer's side of a transfer ends it without saying which version it was: `version` is what it is called.
    """

    def __init__(
        self, *, socket: Path | None, port: int | None, failed: Callable[[str], EnvironmentFailedError]
    ) -> None:
        """`failed` makes the error for a server that does not answer, or answers with an error."""
        super().__init__(f"http://127.0.0.1:{port}" if port else "http://vllm")
        self.version = 0
        self._failed = failed
        transport = httpx.HTTPTransport(
            uds=None if socket is None else str(socket),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )
        # Long responses take long: a server that is gone closes its connections, which is how it is noticed.
        self._http = httpx.Client(
            base_url=self.base_url,
            transport=transport,
            timeout=None,  # noqa: S113
            trust_env=False,
        )

    def healthy(self) -> bool:
        """Whether the server is up."""
        with suppress(httpx.TransportError):
            return self._http.get("/health", timeout=5).is_success
        return False

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON. Raises EnvironmentFailedError when the server refuses, fails or is gone."""
        try:
            answer = self._http.post(path, json=body, params=query)
        except httpx.TransportError as error:
            raise self._failed("died") from error
        if not answer.is_success:
            raise self._failed(f"answered {answer.status_code} to {path}: {answer.text[:1000]}")
        return answer.json() if answer.content else None

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update and name the version."""
        super().finish_weight_update(weight_version or str(self.version))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, path: str, json: dict[str, Any] | None = None) -> None:
        self.post(f"/{path}", json)
