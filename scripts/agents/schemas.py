"""Writes a strict JSON schema for every kind of a Kubernetes OpenAPI document, and of CRDs: a field that is not in it is an error.

    schemas.py SWAGGER CRDS DIRECTORY

CRDS is a stream of CustomResourceDefinitions as JSON. Files are named as kubeconform looks for them.
"""

import json
import pathlib
import sys

PREFIX = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
EITHER = {"oneOf": [{"type": "string"}, {"type": "integer"}]}


def strict(schema, names_of_fields=False):
    """The same schema in plain JSON Schema, closed wherever Kubernetes prunes."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if names_of_fields:
        return {name: strict(each) for name, each in schema.items()}
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return EITHER
    # CEL rules and the like are for the API server; its dry run is a test of its own.
    result = {
        key: strict(value, key in ("properties", "definitions"))
        for key, value in schema.items()
        if not key.startswith("x-kubernetes") and key not in ("description", "default", "nullable", "format")
    }
    if schema.get("nullable") and "type" in result:
        result["type"] = [result["type"], "null"]
        if "enum" in result:
            result["enum"] = [*result["enum"], None]
    open_to_all = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("x-kubernetes-embedded-resource"):
        return {"type": "object"}
    if "properties" in result and not open_to_all:
        result["additionalProperties"] = False
    return result


def references(schema):
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(PREFIX)
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for each in schema:
            yield from references(each)


def closure(names, definitions):
    waiting, seen = list(names), {}
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen[name] = definitions[name]
            waiting.extend(references(definitions[name]))
    return seen


def objects(text):
    """The objects of a stream, and of lists in it."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        found, at = decoder.raw_decode(text, at)
        yield from found["items"] if found.get("kind") == "List" else [found]


def write(directory, group, version, kind, schema):
    suffix = "-".join(part for part in (group.split(".")[0], version) if part)
    (directory / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(schema))


def main():
    swagger, crds, directory = (pathlib.Path(argument) for argument in sys.argv[1:])
    directory.mkdir()
    raw = json.loads(swagger.read_text())["definitions"]
    definitions = {name: strict(schema) for name, schema in raw.items()}
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"oneOf": [{"type": "string"}, {"type": "number"}]}
    definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = EITHER
    # A schema of schemas would be open anyway.
    definitions["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"] = {"type": "object"}
    for name, schema in raw.items():
        for what in schema.get("x-kubernetes-group-version-kind", []):
            # The kind and version are constants, which the document does not say.
            whole = {"$ref": PREFIX + name, "definitions": closure([name], definitions)}
            write(directory, what["group"], what["version"], what["kind"], whole)
    meta = closure([META], definitions)
    for crd in objects(crds.read_text()):
        spec = crd["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {"metadata": {"$ref": PREFIX + META}, "apiVersion": {"type": "string"}, "kind": {"type": "string"}}
            schema["required"] = sorted({*schema.get("required", []), "metadata"})
            schema["definitions"] = meta
            write(directory, spec["group"], version["name"], spec["names"]["kind"], schema)


main()
