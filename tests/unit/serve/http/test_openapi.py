"""The OpenAPI description, held against what is answered to whatever it allows, and to what it does not."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import hypothesis
import schemathesis
from prometheus_client import CollectorRegistry
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from calotype.serve.http.app import create_app
from calotype.serve.settings import ServeSettings
from tests.unit.serve.http.fake_service import StandIn, StandInKeys

EXAMPLES = 8
KEY = {"X-API-Key": "root-key"}

app = create_app(
    StandIn(most_queued=10**6, most_pixels=256 * 256),
    keys=StandInKeys(),
    registry=CollectorRegistry(),
    settings=ServeSettings(allowed_hosts=("testserver",), admins=("root",)),
)
schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=KEY)


class Operation(NamedTuple):
    """Something that the description says one can ask."""

    method: str
    path: str


OPERATIONS = [
    Operation(method, path) for path, methods in app.openapi()["paths"].items() for method in methods
]


def name_of(operation: Operation) -> str:
    words = re.findall(r"\w+", f"{operation.method} {operation.path}")
    return "_".join(["test", *words, "is_as_described"])


@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def as_described(case: schemathesis.Case[Any]) -> None:
    # Names, samplers and the like have rules that a schema does not say; keys have tests of their own.
    case.call_and_validate(headers=KEY, excluded_checks=[positive_data_acceptance, ignored_auth])


# A test for each operation: of one test for all, each case would have the same id, and xdist, which goes by
# ids, would run no more than one of them.
for operation in OPERATIONS:
    only = schema.include(path=operation.path, method=operation.method)
    globals()[name_of(operation)] = only.parametrize()(as_described)


def test_every_operation_has_a_test_of_its_own() -> None:
    names = {name_of(operation) for operation in OPERATIONS}
    assert len(names) == len(OPERATIONS) == len(list(schema.get_all_operations())) > 40
    assert names <= set(globals())


def test_everything_is_described_in_words() -> None:
    described = app.openapi()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), f"{method} {path}"
    for name in ("NewJob", "GenerateRequest", "ImageGeneration", "Txt2Img"):
        assert described["components"]["schemas"][name]["description"]
