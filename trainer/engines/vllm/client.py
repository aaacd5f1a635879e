"""Talks to vLLM's server over HTTP: tokens in, tokens out, and the control of weight updates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from vllm.distributed.weight_transfer.clients import HTTPVLLMWeightSyncClient

from trainer.errors import EnvironmentFailedError

KEPT_ALIVE = 1.0
"""Seconds for which an idle connection is used again."""


class Client(HTTPVLLMWeightSyncClient):
    """vLLM's own client of the weight updates, over a Unix socket or a port, with our errors.

    The trainer's side of a transfer ends it without saying which version it was: `version` is what it is called.
    """

    def __init__(
        self,
        *,
        socket: Path | None,
        port: int | None,
        seconds: float,
        failed: Callable[[str], EnvironmentFailedError],
    ) -> None:
        """`failed` makes the error for a server that does not answer, within `seconds` where it could."""
        super().__init__(f"http://127.0.0.1:{port}" if port else "http://vllm")
        self.version = 0
        self._seconds, self._failed = seconds, failed
        transport = httpx.HTTPTransport(
            uds=None if socket is None else str(socket),
            # The server closes a connection that was idle for 5 s: one that it is about to close must not be used.
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEPT_ALIVE
            ),
        )
        self._http = httpx.Client(
            base_url=self.base_url, transport=transport, timeout=seconds, trust_env=False
        )

    def healthy(self) -> bool:
        """Whether the server is up."""
        with suppress(httpx.TransportError):
            return self._http.get("/health", timeout=5).is_success
        return False

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        """The answer's JSON. Raises EnvironmentFailedError when the server refuses, fails, hangs or is gone."""
        return self._ask(path, body, query, seconds=self._seconds)

    def generate(self, body: Any) -> Any:
        """The answer's JSON, however long it takes: who waits for all requests sees whether any gets done.

        Raises EnvironmentFailedError when the server refuses, fails or is gone.
        """
        return self._ask("/inference/v1/generate", body, {}, seconds=None)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """End the update and name the version."""
        super().finish_weight_update(weight_version or str(self.version))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, path: str, body: Any, query: dict[str, Any], *, seconds: float | None) -> Any:
        try:
            answer = self._http.post(path, json=body, params=query, timeout=seconds)
        except httpx.TimeoutException as error:
            how = f"did not answer {path} within vllm.start_timeout = {seconds:g} s (raise it if that is too short)"
            raise self._failed(how) from error
        except httpx.TransportError as error:
            raise self._failed("died") from error
        if not answer.is_success:
            raise self._failed(f"answered {answer.status_code} to {path}: {answer.text[:1000]}")
        return answer.json() if answer.content else None

    def _post(self, path: str, json: dict[str, Any] | None = None) -> None:
        self.post(f"/{path}", json)
