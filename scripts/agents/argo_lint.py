"""What holds of the Applications of this repository and of what they render.

    argo_lint.py ARGOCD APPLICATIONS RENDERED ...

All are streams of objects as JSON. Prints one line for each mistake, and fails if there is any.
"""

import json
import pathlib
import sys

mistakes = []


def wrong(where, what):
    mistakes.append(f"{where}: {what}")


def objects(path):
    text, decoder, at = path.read_text(), json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        found, at = decoder.raw_decode(text, at)
        yield from found["items"] if found.get("kind") == "List" else [found]


def filled(template, element):
    """An ApplicationSet's template with one entry of its list."""
    text = json.dumps(template)
    for key, value in element.items():
        text = text.replace("{{." + key + "}}", value)
    if "{{" in text:
        wrong("ApplicationSet", f"the entry {element.get('name')} leaves a placeholder: {text[text.index('{{'):][:40]}")
    return json.loads(text)


def check_application(where, application, root):
    spec = application["spec"]
    path = spec["source"].get("path", "")
    if not (root.parent / path / "kustomization.yaml").is_file():
        wrong(where, f"spec.source.path {path!r} has no kustomization.yaml in this repository")
    policy = spec.get("syncPolicy", {})
    if "automated" not in policy:
        wrong(where, "spec.syncPolicy.automated is missing: without it nothing is deployed by a merge")
    # Some CRDs are larger than the annotation of a client-side apply may be.
    if "ServerSideApply=true" not in policy.get("syncOptions", []):
        wrong(where, "spec.syncPolicy.syncOptions needs ServerSideApply=true")


def containers(pod):
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def check_rendered(name, found):
    seen = set()
    for each in found:
        meta = each["metadata"]
        key = (each["apiVersion"].split("/")[0], each["kind"], meta.get("namespace", ""), meta["name"])
        if key in seen:
            wrong(name, f"{each['kind']} {meta['name']} is there twice")
        seen.add(key)
        if each["kind"].startswith(("Workflow", "CronWorkflow", "ClusterWorkflow")):
            wrong(name, f"{each['kind']} {meta['name']}: Jangar runs its own workflows, and nothing here checks those of Argo")
        options = meta.get("annotations", {}).get("argocd.argoproj.io/sync-options", "").split(",")
        if each["kind"] == "CustomResourceDefinition" and not {"Prune=false", "Delete=false"} <= set(options):
            wrong(name, f"{meta['name']} would go with the Application, and every run with it: give it the sync options Prune=false,Delete=false")
        pod = each.get("spec", {}).get("template", {}).get("spec", {}) if each["kind"] in ("Deployment", "Rollout", "Job") else {}
        for container in containers(pod):
            names = [variable["name"] for variable in container.get("env", [])]
            for variable in sorted({one for one in names if names.count(one) > 1}):
                wrong(name, f"{each['kind']} {meta['name']} sets {variable} twice, which server-side apply refuses")
            image = container.get("image", "")
            if image.endswith(":latest") or ":" not in image.split("/")[-1]:
                wrong(name, f"{each['kind']} {meta['name']} runs {image}: name a version, or a rollback cannot know it")


def check_directory(name, directory):
    """A file that the kustomization does not name is never applied, and nobody is told."""
    text = (directory / "kustomization.yaml").read_text()
    named = {line.strip().removeprefix("- ").removeprefix("valuesFile: ") for line in text.splitlines()}
    for path in sorted(directory.glob("*.yaml")):
        # An Application is applied to the namespace of Argo CD, not by itself.
        if path.name not in ("kustomization.yaml", "application.yaml") and path.name not in named:
            wrong(name, f"{path.name} is named nowhere in its kustomization.yaml: add it, or delete it")


def main():
    root, applications, *rendered = (pathlib.Path(argument) for argument in sys.argv[1:])
    by_name = {}
    for each in objects(applications):
        where = f"{each['kind']} {each['metadata']['name']}"
        made = [each]
        if each["kind"] == "ApplicationSet":
            lists = [generator["list"]["elements"] for generator in each["spec"]["generators"] if "list" in generator]
            made = [filled(each["spec"]["template"], element) for elements in lists for element in elements]
            if not made:
                wrong(where, "it makes no Application")
        for application in made:
            name = application["metadata"]["name"]
            check_application(f"{where}, {name}" if made != [each] else where, application, root)
            # An Application that is also written out must be the same one, or the two fight over the cluster.
            if by_name.setdefault(name, application["spec"]) != application["spec"]:
                wrong(where, f"the Application {name} is described twice, and differently")
    for path in rendered:
        check_rendered(path.stem, list(objects(path)))
        check_directory(path.stem, root / "applications" / path.stem)
        if path.stem not in by_name:
            wrong(path.stem, "no Application points to this directory")
    for line in mistakes:
        print(line)
    if mistakes:
        sys.exit(1)
    print(f"argo-lint: {len(by_name)} Applications, {len(rendered)} directories, nothing wrong")


main()
