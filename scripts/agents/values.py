#!/usr/bin/env python3
"""Makes values.schema.json and the table of values in README.md from the comments of charts/agents/values.yaml.

    scripts/agents/values.py           writes both
    scripts/agents/values.py --check   fails if one of them differs from what would be written

values.yaml is the one place where a value is described. It is read line by line, because a YAML parser would drop the
comments; so it keeps to a small part of YAML: block maps, lists in one line, and below keys that have a type of their
own (`# @ ...`) anything that Helm takes.
"""

import json
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).resolve().parents[2] / "charts" / "agents"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"

NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LEVELS = "[^,=]+(=(off|error|warn|info|debug|trace|[0-5]))?"
MAP = {"type": "object", "additionalProperties": {"type": "string"}}
# Types with a name: `# @ NAME`.
TYPES = {
    "map": MAP,
    "scalars": {"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}},
    "object": {"type": "object"},
    "objects": {"type": "array", "items": {"type": "object"}},
    "strings": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "namespaces": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|\\*)$"},
    },
    # The name of an object, or none.
    "name": {"maxLength": 253, "pattern": f"^({NAME})?$"},
    "givenName": {"maxLength": 253, "pattern": f"^{NAME}$"},
    # What a Service, a container and a label can be called.
    "serviceName": {"maxLength": 253, "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"},
    "label": {"maxLength": 253, "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
    "namespace": {"pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"},
    "directory": {"pattern": "^/[^:]+$", "not": {"pattern": "(^|/)\\.\\.(/|$)"}},
    "logLevels": {"pattern": f"(?i)^({LEVELS}(,{LEVELS})*)?$"},
    "podsOrNone": {"type": ["integer", "string"], "minimum": 0, "pattern": "^((100|[1-9]?[0-9])%)?$"},
    "port": {"minimum": 1, "maximum": 65535},
    "duration": {"pattern": "^[0-9]+(ms|s|m|h)$"},
    # Zero, or what the program takes.
    "jobTtl": {"type": ["integer", "null"], "if": {"not": {"const": 0}}, "then": {"minimum": 30}, "minimum": 0, "maximum": 604800},
    "intOrPercent": {
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": "^(100|[1-9]?[0-9])%$",
    },
}


def only_with_traffic(kind):
    return {"const": f"{kind} needs a traffic router, which this chart does not set up: use setWeight, pause, analysis, experiment or plugin"}


TYPES["canarySteps"] = {
    "type": "array",
    "items": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {
            "setWeight": {"type": "integer", "minimum": 0, "maximum": 100},
            "pause": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"duration": {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+(s|m|h)?$"}},
            },
            "analysis": {"type": "object"},
            "experiment": {"type": "object"},
            "plugin": {"type": "object", "required": ["name"]},
            "setCanaryScale": only_with_traffic("setCanaryScale"),
            "setHeaderRoute": only_with_traffic("setHeaderRoute"),
            "setMirrorRoute": only_with_traffic("setMirrorRoute"),
        },
    },
}

# Values of the earlier chart that have nothing behind them any more. What the schema says of them is the only place where
# a person meets them, so the sentence stands in for the value that is expected.
GONE = {
    "agentComms": "agentComms was left out: Jangar stores no messages of NATS. Remove it",
    "workflowRuntime": "workflowRuntime was left out: Jangar has no orchestrations with a fixed name. Remove it",
    "argocdHooks.image": "argocdHooks.image was left out: the run is a hook of Argo CD itself and needs no kubectl. Remove it",
    "argocdHooks.serviceAccountName": "argocdHooks.serviceAccountName was left out: the run is a hook of Argo CD itself. Name an account in argocdHooks.smoke.agentRun",
    "argocdHooks.syncWaves.preSync": "argocdHooks.syncWaves.preSync was left out: the last run is removed just before the new one. Remove it",
    "argocdHooks.postSync.waitTimeout": "argocdHooks.postSync.waitTimeout was left out: bound the run itself, in argocdHooks.smoke.agentRun",
    "argocdHooks.smoke.labelSelector": "argocdHooks.smoke.labelSelector was left out: what belongs to the run goes with it. Remove it",
}


def stop(message):
    sys.exit(f"values.py: {message}")


def scalar(text):
    """A value that stands behind its key."""
    if text in ("[]", "{}"):
        return json.loads(text)
    if text in ("null", "true", "false") or re.fullmatch(r"-?[0-9]+", text):
        return json.loads(text)
    if text.startswith("["):
        return [part.strip() for part in text[1:-1].split(",")]
    if text.startswith('"'):
        return json.loads(text)
    return text


class Value:
    def __init__(self, path, indent, doc, rule, default):
        self.path, self.indent, self.doc, self.rule, self.default = path, indent, doc, rule, default
        self.children = []
        # Lines below a key that has a type of its own are its default.
        self.below = []


def read(text):
    root = Value((), -1, "", None, "")
    stack, comment, opaque = [root], [], None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if opaque is not None and stripped and indent > opaque.indent:
            opaque.below.append(line[opaque.indent + 2:])
            continue
        opaque = None
        if not stripped:
            comment = []
            continue
        if stripped.startswith("#"):
            comment.append(stripped[1:].strip())
            continue
        match = re.fullmatch(r"([A-Za-z][A-Za-z0-9]*):(.*)", stripped)
        if not match:
            stop(f"values.yaml:{number}: expected `key: value`, found {stripped!r}")
        while indent <= stack[-1].indent:
            stack.pop()
        rules = [part[1:].strip() for part in comment if part.startswith("@")]
        doc = " ".join(part for part in comment if not part.startswith("@"))
        rule = None
        if rules:
            rule = json.loads(rules[0]) if rules[0].startswith("{") else TYPES.get(rules[0])
            if rule is None:
                stop(f"values.yaml:{number}: {rules[0]!r} is no type; there are {', '.join(TYPES)}")
        rest = match.group(2).strip()
        value = Value(stack[-1].path + (match.group(1),), indent, doc, rule, scalar(rest) if rest else "")
        stack[-1].children.append(value)
        comment = []
        if rule is not None and not rest:
            opaque = value
        elif not rest:
            stack.append(value)
        if not doc and (rest or opaque):
            stop(f"values.yaml:{number}: {'.'.join(value.path)} has no description above it")
    return root


def kind_of(value):
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, str):
        return "string"
    return None


def schema_of(value):
    if value.children:
        properties = {child.path[-1]: schema_of(child) for child in value.children}
        prefix = ".".join(value.path)
        for gone, sentence in GONE.items():
            parent, _, key = gone.rpartition(".")
            if parent == prefix:
                properties[key] = {"const": sentence}
        schema = {"type": "object", "additionalProperties": False, "properties": properties}
    else:
        rule = dict(value.rule or {})
        if "type" not in rule and "enum" not in rule:
            kind = kind_of(value.default)
            if kind is None:
                stop(f"{'.'.join(value.path)}: say what it takes with `# @ ...`")
            rule = {"type": kind, **rule}
        schema = rule
    if value.doc:
        schema = {"description": value.doc, **schema}
    return schema


def takes(rule, default):
    if rule is None:
        return kind_of(default)
    if "enum" in rule:
        return " or ".join(f"`{each}`" for each in rule["enum"] if each != "")
    kind = rule.get("type", kind_of(default))
    if rule is TYPES["canarySteps"]:
        return "list of steps"
    if rule is TYPES["intOrPercent"]:
        return "integer, or percent"
    if kind == "array":
        return {"string": "list of strings"}.get(rule["items"].get("type"), "list of objects" if "enum" not in rule["items"] else "list of " + ", ".join(f"`{each}`" for each in rule["items"]["enum"]))
    if kind == "object":
        return "map" if "additionalProperties" in rule else "object"
    words = " or ".join(kind) if isinstance(kind, list) else kind
    bounds = [str(rule[bound]) for bound in ("minimum", "maximum") if bound in rule]
    if "minimum" in rule and "maximum" in rule:
        words += f" from {bounds[0]} to {bounds[1]}"
    elif "minimum" in rule:
        words += f" from {bounds[0]}"
    return words


def rows(value):
    if value.children:
        for child in value.children:
            yield from rows(child)
        return
    default = "; ".join(line.strip() for line in value.below) if value.below else json.dumps(value.default)
    cells = [f"`{'.'.join(value.path)}`", value.doc, takes(value.rule, value.default), f"`{default}`"]
    yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def made():
    root = read((CHART / "values.yaml").read_text())
    schema = schema_of(root)
    # Helm hands values of a parent chart down under this key.
    schema["properties"]["global"] = {"type": "object"}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart agents", **schema}
    yield CHART / "values.schema.json", json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    readme = CHART / "README.md"
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        stop(f"{readme} has no place for the table: {BEGIN} ... {END}")
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    table = "\n".join(["| value | meaning | takes | default |", "|---|---|---|---|", *rows(root)])
    yield readme, f"{head}{BEGIN}\n{table}\n{END}{tail}"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        stop("usage: scripts/agents/values.py [--check]")
    for path, text in made():
        if check:
            if path.read_text() != text:
                stop(f"charts/agents/{path.name} is not what values.yaml says: run `make generate` and commit the result")
        else:
            path.write_text(text)


main()
