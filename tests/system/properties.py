"""Requests made from api/openapi/lbb.yaml, and what their answers must be.

schemathesis makes them: for each operation the values at the edges of what
the document says (its coverage phase: boundaries, each thing missing, twice or
of another type, methods that are not there) and random ones, valid and not.
All are made before the first is sent, so they depend on the document, the
count and the seed alone; they are sent in one mixed order.

Live (live.py) then puts ids of real records in the places of valid ones, else
most would be 404, and bounds what a valid request may cost.  What was invalid
stays as it was made.
"""
import collections
import json
import math
import os
import random
import re
import sys

from hutchlib import BUILD, TOP, locked_packages

SITE = f"{BUILD}/images/schemathesis/site"
DOCUMENT = f"{TOP}/api/openapi/lbb.yaml"
REQUEST_S = 120         # longest that an answer may take
EDGES_SHARE = .5        # of the requests of an operation
# Most operations get the same number; these have much more to say.
WEIGHTS = {"createSandbox": 4, "createCommand": 3, "createTemplate": 2,
           "updateSandbox": 2, "createGrant": 2}
# Of a 5xx: what the document lets a daemon answer that is well (api/errors.h).
FULL = ("sandbox_capacity", "service_unavailable")


def packages():
    """Import schemathesis, or skip."""
    locked_packages(SITE, "the packages of schemathesis",
                    "images-schemathesis")
    if SITE not in sys.path:
        sys.path.insert(0, SITE)


def same_hashes():
    """Begin again with one order of sets and dicts, which generators see."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable] + sys.argv)


def known_errors():
    """api/errors.h: code -> {(status, type)}"""
    with open(f"{TOP}/api/errors.h", encoding="utf-8") as f:
        text = f.read().replace("\\\n", " ")
    found = collections.defaultdict(set)
    for code, kind, status in re.findall(
            r'X\(\w+,\s*"(\w+)",\s*"(\w+)",\s*(\d{3}),', text):
        found[code].add((int(status), kind))
    assert len(found) > 30, found
    return found


# ---- making -----------------------------------------------------------------

def operations(admin):
    """Of the admin socket, or of the port; in the document's order."""
    import schemathesis
    schema = schemathesis.openapi.from_path(DOCUMENT)
    # The caller sends a key, or none: too many wrong ones are told to wait.
    schema.config.generation.update(with_security_parameters=False)
    # What is invalid may be too large as well, and is refused for that.
    rejection = schema.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]
    return [op for op in (r.ok() for r in schema.get_all_operations())
            if op.path.startswith("/admin") == admin]


def edges(op):
    from schemathesis import GenerationMode
    from schemathesis.generation.drivers import CoverageGenerator
    from schemathesis.generation.feedback import NO_FEEDBACK
    from schemathesis.generation.overrides import Override
    return list(CoverageGenerator(
        operation=op, generation_modes=list(GenerationMode),
        generation_config=op.schema.config.generation, auth_storage=None,
        override=Override(), feedback=NO_FEEDBACK))


def drawn(op, count, seed):
    """Random ones: `count` valid, and as many that are not; fewer of what has
    not so many."""
    import hypothesis
    from schemathesis import GenerationMode
    cases = []
    for mode in GenerationMode:
        got = []

        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=count, database=None, deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck))
        @hypothesis.given(op.as_strategy(generation_mode=mode))
        def draw(case):
            got.append(case)

        try:
            draw()
        except hypothesis.errors.Unsatisfiable:
            pass        # nothing about it can be wrong
        cases += got[:count]
    return cases


def some(cases, count, rng):
    """`count` of them: each once before one comes twice."""
    picked = []
    while cases and len(picked) < count:
        picked += rng.sample(cases, min(len(cases), count - len(picked)))
    return picked


def operation_id(case):
    return case.operation.definition.raw["operationId"]


def requests(ops, total, seed, every_edge):
    """At least `total` cases of all operations; each edge, or some."""
    rng = random.Random(seed)
    weights = [WEIGHTS.get(op.definition.raw["operationId"],
                           .3 if op.tags == ["service"] else 1) for op in ops]
    made = []
    for op, weight in zip(ops, weights):
        count = math.ceil(total * weight / sum(weights))
        at_edges = edges(op)
        n_edges = max(int(count * EDGES_SHARE),
                      len(at_edges) if every_edge else 0)
        count -= int(count * EDGES_SHARE)
        made += some(at_edges, n_edges, rng) + some(
            drawn(op, count // 2 + 1, rng.randrange(1 << 32)), count, rng)
    rng.shuffle(made)
    return made


# ---- judging ----------------------------------------------------------------

class Members:
    """What the document names in an answer: JSON Schema lets others pass."""

    def __init__(self):
        import yaml
        with open(DOCUMENT, encoding="utf-8") as f:
            self.doc = yaml.safe_load(f)

    def resolve(self, node):
        while "$ref" in node:
            at = self.doc
            for part in node["$ref"].removeprefix("#/").split("/"):
                at = at[part]
            node = at
        return node

    def parts(self, schema):
        """A schema and all that it is made of."""
        schema = self.resolve(schema)
        yield schema
        for word in ("allOf", "oneOf", "anyOf"):
            for part in schema.get(word, ()):
                yield from self.parts(part)

    def unnamed(self, schemas, value, at=""):
        parts = [p for schema in schemas for p in self.parts(schema)]
        if isinstance(value, list):
            items = [p["items"] for p in parts if "items" in p]
            for one in value if items else ():
                yield from self.unnamed(items, one, at + "[]")
        known = [p["properties"] for p in parts if "properties" in p]
        if not isinstance(value, dict) or not known or \
                any(p.get("additionalProperties") for p in parts):
            return
        for name, one in value.items():
            found = [k[name] for k in known if name in k]
            if found:
                yield from self.unnamed(found, one, f"{at}.{name}")
            else:
                yield f"{at}.{name} is not in the document"

    def of(self, case, response):
        """Of a whole answer."""
        method = case.method.lower()
        operation = self.doc["paths"][case.path].get(method)
        kind = response.headers.get("content-type", [""])[0]
        if not operation or not kind.startswith("application/json"):
            return
        answers = operation["responses"]
        answer = self.resolve(answers.get(str(response.status_code),
                                          answers["default"]))
        schema = answer.get("content", {}).get("application/json", {}).get(
            "schema")
        if schema:
            yield from self.unnamed([schema], json.loads(response.content))


class Judge:
    """What is wrong with answers; counts what they were."""

    def __init__(self):
        from schemathesis.specs.openapi import checks
        self.checks = [
            checks.status_code_conformance, checks.content_type_conformance,
            checks.response_headers_conformance,
            checks.response_schema_conformance,
            checks.negative_data_rejection, checks.missing_required_header,
            checks.unsupported_method, checks.allow_header_conformance]
        self.members = Members()
        self.errors = known_errors()
        self.statuses = collections.Counter()
        self.by_operation = collections.defaultdict(collections.Counter)
        self.succeeded = set()

    def problems(self, case, response):
        """Sentences; none is well."""
        from schemathesis.core.failures import FailureGroup
        self.statuses[response.status_code] += 1
        name = operation_id(case)
        self.by_operation[name][response.status_code] += 1
        # Not by another method: OPTIONS is answered everywhere.
        if response.status_code < 300 and \
                case.method.upper() == case.operation.method.upper():
            self.succeeded.add(name)
        found = list(self.server_error(response))
        if response.status_code >= 400:
            found += self.envelope(case, response)
        found += self.members.of(case, response)
        try:
            case.validate_response(response, checks=self.checks)
        except FailureGroup as e:
            found += [f"{x.title}: {x.message}" for x in e.exceptions]
        return found

    def server_error(self, response):
        """500 and above is a failure of the daemon, but for one: a host that
        is full, or a daemon that cannot at this moment, says 503 with one of
        two codes, that it may be sent again, and when.  The document promises
        that, and a client acts on it.  What holds for all errors is looked at
        as well."""
        if response.status_code < 500:
            return
        try:
            error = json.loads(response.content)["error"]
        except (ValueError, KeyError, TypeError):
            error = {}
        if response.status_code != 503 or error.get("code") not in FULL:
            yield f"server error {response.status_code} {response.content[:300]}"
        elif error.get("retryable") is not True:
            yield f"503 that is not retryable: {error}"

    def envelope(self, case, response):
        """Errors are of the table (LBB-9, LBB-10, LBB-11)."""
        status, headers = response.status_code, response.headers
        if case.method.upper() == "HEAD":
            return
        try:
            error = json.loads(response.content)["error"]
            code, kind = error["code"], error["type"]
        except (ValueError, KeyError, TypeError):
            # JSON-RPC has errors of its own (the document's 400 of /mcp).
            if case.path != "/mcp" or status != 400:
                yield f"{status} without the envelope: {response.content[:300]}"
            return
        if (status, kind) not in self.errors.get(code, ()):
            yield f"{status} {kind} {code} is not in api/errors.h"
        if [error["request_id"]] != headers.get("x-request-id"):
            yield f"request id {error['request_id']}, not that of the header"
        after = headers.get("retry-after", [None])[0]
        if (status in (429, 503)) != (after is not None):
            yield f"{status} with Retry-After {after}"
        elif after is not None and str(error["retry_after_seconds"]) != after:
            yield f"Retry-After {after}, {error['retry_after_seconds']} in the body"
        if (status == 405) != ("allow" in headers):
            yield f"{status} with Allow {headers.get('allow')}"
        if (status == 401) != ("www-authenticate" in headers):
            yield f"{status} with WWW-Authenticate"

    def summary(self):
        yield ", ".join(f"{n} of {status}" for status, n in
                        sorted(self.statuses.items()))
        for name, statuses in self.by_operation.items():
            yield f"{name}: " + " ".join(f"{status}:{n}" for status, n in
                                         sorted(statuses.items()))

    def without_success(self):
        """Operations that answered none of their requests with 2xx."""
        return sorted(self.by_operation.keys() - self.succeeded)
