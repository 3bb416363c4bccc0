"""The Dockerfile passes hadolint; deploy/kubernetes is valid, and asks for no more than the image needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import memos
from memos.api import serving
from scripts import check_image
from tests.project.test_project import settings_of
from tests.support.servers.fixtures import unavailable

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FOLDER = ROOT / "deploy/kubernetes"
CUSTOMISATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
RESOURCES: dict[str, dict[str, Any]] = {
    document["kind"]: document
    for name in CUSTOMISATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))
}
POD: dict[str, Any] = RESOURCES["Deployment"]["spec"]["template"]["spec"]
[SERVER] = POD["containers"]
# The oldest release that distributions still keep alive, and a recent one.
VERSIONS = ("1.30.0", "1.37.0")


def tool(name: str) -> str:
    """Return the path of a checker."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = shutil.which(name) or shutil.which(name, path=str(cache / "hippocube/container-checks/bin"))
    if found is None:
        unavailable(f"{name} is not here: sh scripts/install_servers.sh")
    assert found is not None
    return found


def test_the_build_context_has_what_the_image_needs_and_nothing_else() -> None:
    files = {str(file) for file in check_image.context(ROOT)}
    copied = [line.split()[1:-1] for line in DOCKERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    named = {name for names in copied for name in names}
    assert {file.partition("/")[0] for file in files} == named
    assert not [file for file in files if "__pycache__" in file]


def test_image_check_understands_the_dockerfile() -> None:
    """`make image-check` takes minutes and root, so only its reading is tested here."""
    image, stages = check_image.Image(Path("/nowhere")), dict[str, check_image.Image]()
    for name, rest in check_image.instructions(DOCKERFILE):
        if name not in ("FROM", "RUN", "COPY", "WORKDIR"):
            check_image.execute(image, name, rest, stages)
    assert [*image.entrypoint, *image.command] == ["memos", "serve"]
    assert (image.volume, image.expose, image.stopsignal) == ("/var/lib/hippocube", "8765", "SIGTERM")
    assert image.environment["PATH"].startswith("/opt/hippocube/bin:/usr/local/bin:")
    assert "/ready" in image.health[-1]


def test_hadolint_finds_nothing() -> None:
    command = [tool("hadolint"), "--no-color", "--failure-threshold", "style", str(ROOT / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_valid(version: str) -> None:
    files = [str(FOLDER / name) for name in CUSTOMISATION["resources"]]
    command = [tool("kubernetes-validate"), "--strict", "--kubernetes-version", version, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed") == len(RESOURCES)


def test_kustomize_renders_them_for_three_replicas(tmp_path: Path) -> None:
    program = shutil.which("kustomize")
    if program is None:
        pytest.skip("kustomize is not here; no package of pip or Debian has it")
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    (tmp_path / "kubernetes/secret.env").write_text("MEMOS_LEDGER_URL=postgresql://a:b@c/d\n", encoding="utf-8")
    done = subprocess.run([program, "build", tmp_path / "kubernetes"], capture_output=True, text=True, check=True)
    rendered = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
    assert set(rendered) == {*RESOURCES, "ConfigMap", "Secret"}
    deployment = rendered["Deployment"]["spec"]
    assert deployment["replicas"] == 3
    [server] = deployment["template"]["spec"]["containers"]
    assert server["image"] == f"registry.example/hippocube:{memos.__version__}"
    names = [
        source[kind]["name"] for source, kind in zip(server["envFrom"], ("configMapRef", "secretRef"), strict=True)
    ]
    assert names == [rendered[kind]["metadata"]["name"] for kind in ("ConfigMap", "Secret")]


def test_pods_are_restricted() -> None:
    user = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert user is not None
    pod, server = POD["securityContext"], SERVER["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["runAsGroup"]) == (True, int(user[1]), int(user[2]))
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert server["capabilities"] == {"drop": ["ALL"]}
    assert (server["allowPrivilegeEscalation"], server["readOnlyRootFilesystem"]) == (False, True)
    assert POD["automountServiceAccountToken"] is False
    assert all("emptyDir" in volume for volume in POD["volumes"])
    assert set(SERVER["resources"]["limits"]) == set(SERVER["resources"]["requests"]) == {"cpu", "memory"}
    assert RESOURCES["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


def test_a_pod_has_time_to_end_what_is_under_way() -> None:
    before = int(SERVER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] >= before + serving.STOP_WITHIN_S + 10


def test_probes_ask_what_they_should() -> None:
    asked = {name: SERVER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert asked == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}


def test_everything_selects_the_servers() -> None:
    labels = RESOURCES["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [RESOURCES[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")]
    selectors += [
        RESOURCES["Service"]["spec"]["selector"],
        RESOURCES["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    selectors += [spread["labelSelector"]["matchLabels"] for spread in POD["topologySpreadConstraints"]]
    assert all(selector == labels for selector in selectors)
    [port] = SERVER["ports"]
    assert f"EXPOSE {port['containerPort']}" in DOCKERFILE


def test_settings_are_known_and_no_secret_has_a_value() -> None:
    lines = (FOLDER / "server.env").read_text(encoding="utf-8").splitlines()
    named = {found[1] for line in lines if (found := re.match(r"(?:# )?([A-Z_0-9]+)=", line))}
    assert named - settings_of() == {"FORWARDED_ALLOW_IPS"}
    example = (FOLDER / "secret.env.example").read_text(encoding="utf-8").splitlines()
    secrets = [line for line in example if line and not line.startswith("#")]
    assert {line.removesuffix("=") for line in secrets} <= settings_of()
    assert all(line.endswith("=") for line in secrets)
    [image] = CUSTOMISATION["images"]
    assert (image["name"], image["newTag"]) == (SERVER["image"], memos.__version__)
