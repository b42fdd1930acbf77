"""Calls a Kubernetes API by the official client, which is imported with this module.

The client finds the cluster (kubeconfig with its plugins, or the pod it runs in) and does TLS. Requests to a
busy server are retried.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes import client, config
from urllib3 import Retry
from urllib3.exceptions import HTTPError
from yaml import YAMLError  # type: ignore[import-untyped]  # it ships no types

from calotype.launch.backend import LaunchError
from calotype.launch.kubernetes.client_protocol import LostError, RefusedError

_TRIES = 5
_TIMEOUT_S = 30.0
_STREAM_S = 300.0
"""Silence after which a stream counts as lost."""
_BUSY = (429, 500, 502, 503, 504)


class OfficialClient:
    """A cluster, called by the `kubernetes` package."""

    def __init__(self, context: str | None = None) -> None:
        settings = client.Configuration()
        try:
            if context is None and "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
                config.load_incluster_config(client_configuration=settings)
            else:
                config_file = os.environ.get("KUBECONFIG", "~/.kube/config")
                config.load_kube_config(
                    config_file=config_file, context=context, client_configuration=settings
                )
        # For a file that is not a kubeconfig the client raises plain Python errors.
        except (config.ConfigException, OSError, YAMLError, TypeError, AttributeError) as error:
            message = " ".join(str(error).split())
            raise LaunchError(
                f"no Kubernetes cluster is known: {message}; set KUBECONFIG or kubernetes.context, or use "
                "`calotype launch render` and submit the file with kubectl"
            ) from None
        # All methods: our objects carry a mark by which a retry recognizes the first attempt.
        settings.retries = Retry(
            total=_TRIES,
            backoff_factor=0.1,
            status_forcelist=_BUSY,
            allowed_methods=None,
            raise_on_status=False,
        )
        self._api = client.ApiClient(settings)
        self._host = settings.host

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        try:
            return json.loads(self._call(method, path, query or {}, body, _TIMEOUT_S).data)
        except HTTPError as error:
            raise LostError(f"the answer of {self._host} was lost: {error}") from None

    def lines(self, path: str, query: Mapping[str, str | int]) -> Iterator[str]:
        response = self._call("GET", path, query, None, _STREAM_S)
        rest = b""
        try:
            for piece in response.stream(2**14, decode_content=True):
                *whole, rest = (rest + piece).split(b"\n")
                yield from (line.decode("utf-8", errors="replace") for line in whole)
        except HTTPError as error:
            raise LostError(f"a stream of {self._host} was lost: {error}") from None
        finally:
            response.release_conn()
        if rest:
            yield rest.decode("utf-8", errors="replace")

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
        silence_s: float,
    ) -> Any:
        try:
            return self._api.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=(10.0, silence_s),
            )
        except client.ApiException as error:
            raise _refusal(error.status, error.reason, error.body) from None
        except HTTPError as error:
            raise LostError(f"the Kubernetes API at {self._host} does not answer: {error}") from None


def _refusal(status: int, reason: str | None, body: bytes | str | None) -> RefusedError:
    """Build the error from the API's Status object, or from whatever a proxy sent instead."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body or ""
    try:
        status_values = json.loads(text)
    except ValueError:
        status_values = {}
    if not isinstance(status_values, dict):
        status_values = {}
    message = str(status_values.get("message") or text.strip()[:200] or "without a reason")
    return RefusedError(status, str(status_values.get("reason") or reason or ""), message)
