"""Files for operators: they use options, settings, addresses and ports that `thrifty serve` has, and lock it in."""

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml
from packaging.requirements import Requirement

from benchmarks import proxy
from benchmarks.ports import free_ports
from thrifty import Chain, Policy
from thrifty.cli import app
from thrifty.engine.full.model import PrecomputedFull
from thrifty.engine.prices.billing import PriceList
from thrifty.engine.tasks.classes import BinaryTask
from thrifty.engine.walk.stage import LinearStage

create_app = pytest.importorskip("thrifty.serve.app").create_app
server = pytest.importorskip("thrifty.serve.server")

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
NGINX = (DEPLOY / "nginx.conf").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
KINDS = {one["kind"]: one["spec"] for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
POD = KINDS["Deployment"]["template"]["spec"]
CONTAINER = POD["containers"][0]
UNIT = configparser.ConfigParser(strict=False, interpolation=None, delimiters=["="])
UNIT.optionxform = str
UNIT.read(DEPLOY / "thrifty.service")
SERVICE = UNIT["Service"]

ENTRYPOINT = yaml.safe_load(re.search(r"^ENTRYPOINT (.*)", DOCKERFILE, re.MULTILINE)[1])[2]
COMMANDS = {
    "Dockerfile": ENTRYPOINT.partition("thrifty serve ")[2],
    "compose": shlex.join(COMPOSE["gateway"]["command"]),
    "kubernetes": shlex.join(CONTAINER["args"]),
    "systemd": SERVICE["ExecStart"].partition("thrifty serve ")[2],
}


@pytest.mark.parametrize("where", COMMANDS)
def test_every_option_is_one_of_thrifty_serve(where):
    command = typer.main.get_command(app).commands["serve"]
    known = {option for one in command.params for option in one.opts}
    assert {one for one in shlex.split(COMMANDS[where]) if one.startswith("--")} <= known
    assert re.search(r"system\.thrifty|\$@", COMMANDS[where])


@pytest.fixture(scope="module")
def gateway():
    """The application of a chain of one linear stage."""
    stage = LinearStage(np.array([0]), np.ones((1, 2)), np.zeros(2))
    full = PrecomputedFull(np.array([[0.5, 0.5]]), np.array([7], dtype=np.uint64))
    prices = PriceList(np.ones(1), np.arange(1))
    return create_app(Chain((stage,), full, prices, BinaryTask(np.arange(2)), Policy.of(np.zeros(1))))


def test_probes_ask_addresses_that_need_no_key_at_the_port_that_is_served(gateway):
    routes = {one.path: one.app for one in gateway.routes}
    asked = [CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    health = re.search(r"^HEALTHCHECK .*http://127.0.0.1:(\d+)([^']+)'", DOCKERFILE, re.MULTILINE)
    paths = [one["path"] for one in asked] + [health[2]]
    assert [routes[path].role for path in paths] == [None] * len(paths)
    assert routes["/predict"].role == "clients"
    assert {one["port"] for one in asked} == {CONTAINER["ports"][0]["name"]}
    opened = [one["containerPort"] for one in CONTAINER["ports"]]
    assert opened == [one["ports"][0]["port"] for one in KINDS["NetworkPolicy"]["ingress"]]
    assert opened[1] == gateway.state.gateway.config.admin_port
    ports = {opened[0], int(health[1])}
    ports |= set(map(int, COMPOSE["gateway"]["expose"]))
    ports |= set(map(int, re.findall(r"server gateway:(\d+)", NGINX)))
    ports |= {int(one) for one in re.findall(r"^EXPOSE (\d+)", DOCKERFILE, re.MULTILINE)}
    assert ports == {gateway.state.gateway.config.port}


def test_the_proxy_limits_clients_and_never_asks_more_than_the_gateway_has_room_for(gateway):
    settings = dict(re.findall(r"^\s*(\w+) ([^;\n]+);", NGINX, re.MULTILINE))
    limits = {
        "client_header_timeout",
        "client_body_timeout",
        "send_timeout",
        "limit_conn",
        "client_max_body_size",
    }
    assert limits <= set(settings)
    config = gateway.state.gateway.config
    assert settings["client_max_body_size"] == f"{config.max_body_bytes // 2**20}m"
    most = int(re.search(r"max_conns=(\d+)", NGINX)[1])
    assert most < server.MAX_CONNECTIONS
    idle = re.search(r"upstream gateway \{.*?keepalive_timeout (\d+)s", NGINX, re.DOTALL)
    assert int(idle[1]) < server.KEEP_ALIVE
    ports = {int(one) for one in re.findall(r"listen (\d+) ssl", NGINX)}
    assert ports == {int(one.rsplit(":", 1)[1]) for one in COMPOSE["proxy"]["ports"]}


@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx; make test-proxy attacks it")
def test_nginx_takes_the_file_as_any_user_who_owns_the_folder(tmp_path):
    with proxy.proxied(tmp_path, *free_ports(2)) as process:
        assert process.poll() is None


def test_containers_are_read_only_without_capabilities_and_limited():
    for one in COMPOSE.values():
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in one["security_opt"]
        assert {"mem_limit", "cpus", "pids_limit"} <= set(one)
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(CONTAINER["resources"]["limits"])
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False


def test_the_compiled_code_of_a_container_is_its_own_and_its_user_is_not_root():
    user = re.search(r"^USER (\d+):(\d+)", DOCKERFILE, re.MULTILINE)
    assert int(user[1]) == POD["securityContext"]["runAsUser"] == 10001
    cache = re.search(r" NUMBA_CACHE_DIR=(\S+)$", DOCKERFILE, re.MULTILINE)[1]
    mounts = {one["mountPath"]: one["name"] for one in CONTAINER["volumeMounts"]}
    volume = next(one for one in POD["volumes"] if one["name"] == mounts[cache])
    assert volume["emptyDir"]["medium"] == "Memory"
    assert COMPOSE["gateway"]["tmpfs"][0].startswith(f"{cache}:uid={user[1]},gid={user[2]},mode=0700")


def test_the_unit_is_locked_in_and_keeps_compiled_code_to_itself():
    wanted = {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes"}
    wanted |= {"CapabilityBoundingSet": "", "CacheDirectoryMode": "0700", "PrivateTmp": "yes"}
    assert {name: SERVICE[name] for name in wanted} == wanted
    assert {"MemoryMax", "TasksMax", "LimitNOFILE"} <= set(SERVICE)
    assert f"NUMBA_CACHE_DIR=/var/cache/{SERVICE['CacheDirectory']} " in SERVICE["Environment"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_knows_every_line_of_the_unit(tmp_path):
    text = (DEPLOY / "thrifty.service").read_text().replace("/opt/thrifty/bin/thrifty", "/bin/true")
    (tmp_path / "thrifty.service").write_text(text)
    unit = str(tmp_path / "thrifty.service")
    said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


def test_the_image_is_of_a_pinned_version_and_installs_by_hash_what_is_tested():
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(set(images)) == 1
    assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", images[0])
    assert DOCKERFILE.count("--require-hashes -r requirements.txt") == 2
    locked = re.findall(
        r"^([\w.-]+)==(\S+)(.*(?:\n    --hash=sha256:[0-9a-f]{64}.*)+)",
        (DEPLOY / "requirements.txt").read_text(),
        re.MULTILINE,
    )
    lines = (DEPLOY / "requirements.txt").read_text().splitlines()
    assert len(locked) == sum(not one.startswith((" ", "#")) for one in lines)
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    pinned = {_name(name): version for name, version in pins}
    versions = {_name(name): version for name, version, _ in locked}
    assert {name: versions[name] for name in pinned.keys() & versions} == {
        name: pinned[name] for name in pinned.keys() & versions
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(one) for one in (*project["dependencies"], *extras["serve"], *extras["signing"])]
    assert {_name(one.name) for one in wanted} <= set(versions)


def _name(package):
    return re.sub(r"[-_.]+", "-", package).lower()


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").iterdir()), ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version_beside_it(path):
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    assert not [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)]


def test_dependabot_watches_everything_that_is_pinned():
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    assert {one["package-ecosystem"] for one in updates} == {"github-actions", "pip", "docker"}
