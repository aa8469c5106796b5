"""Several combined nodes on this machine, each a process of its own: `kraft up`, the demo, tests.

    DIR/cluster.json                 bootstrap; per node: id, pid and ports; what runs beside them; passwords;
                                     whether all of it is made
    DIR/client.properties, DIR/tls/  for clients of a cluster with TLS or logins: see security.py
    DIR/node-1/server.properties     written by `create`, added to by `configure`
    DIR/node-1/node.log              what the node prints
    DIR/node-1/data/                 its log dir

A `LocalCluster` either owns its nodes (they end with this process, whatever ends it) or, with
`detached`, leaves them running. `attach` finds a cluster of another process by its directory:
that is how `kraft node kill 2` reaches the nodes of a `kraft up` in another terminal. Programs that
serve the cluster from beside it (a proxy between its nodes) can be made known to it, and end with it.

Settings may hold passwords, and node.log what a node says of them: every file is its owner's alone, whatever
an earlier run or the umask left.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextvars import copy_context
from dataclasses import asdict
from pathlib import Path
from typing import Final

import psutil

from kraft import own_packages
from kraft.config.node_config import Config
from kraft.config.properties import format_properties, parse_properties
from kraft.local.free_ports import HOST
from kraft.local.layout import (
    LocalNode,
    command,
    home_of,
    new_id,
    nodes_at,
    nodes_from,
    properties_of_all,
    refuse_taken_ports,
)
from kraft.local.private_files import alone_in, make_private, write_private
from kraft.local.processes import (
    POLL_S,
    LocalProcess,
    await_end,
    await_stop,
    end_all,
    end_of,
    how_ended,
    last_line,
    signal_all,
    start_in_background,
)
from kraft.local.runs import CALLED_OFF, refuse_other
from kraft.local.security import PLAINTEXT, LocalSecurity, make_certificates, planned_security
from kraft.peers.held_signals import signals_wait
from kraft.storage.bootstrap import parse_user
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ExitCode, FatalError

NODE_PROGRAM: Final = ("kraft.node.process",)
START_PATIENCE_S: Final = 60.0
STOP_PATIENCE_S: Final = 30.0


class LocalCluster:
    """Made by `create` or `attach`."""

    def __init__(
        self,
        directory: Path,
        cluster_id: str,
        nodes: Sequence[LocalNode],
        owner: int | None,
        program: Sequence[str] = NODE_PROGRAM,
        companions: Mapping[str, LocalProcess] | None = None,
        security: LocalSecurity = PLAINTEXT,
    ) -> None:
        self.directory = directory
        self.cluster_id = cluster_id
        self.nodes = {node.id: node for node in nodes}
        self.owner = owner
        """The process that the nodes end with; None where they are detached."""
        self.program = tuple(program)
        """The module that runs as a node, and its options."""
        self.companions = dict(companions or {})
        """Programs that end with the cluster, by name."""
        self.security = security
        """How the listeners are secured, and what clients need to connect."""
        self.is_made = True
        """False until `create` has come to its end: some nodes may not be formatted."""
        self.run = ""
        """Names the last `create`: of two at once, the one of which cluster.json speaks starts the nodes."""
        self._logged: dict[int, int] = {}
        """How long each node's log was when this process started the node."""
        self._owner_process: LocalProcess | None = None
        self._children: dict[int | str, subprocess.Popen[bytes]] = {}
        """Child processes of this process: nodes by id, companions by name."""

    # -- making one -------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        nodes: int = 3,
        port: int = 9092,
        ports: Sequence[int] | None = None,
        settings: Mapping[str, str] | None = None,
        users: Sequence[str] = (),
        detached: bool = False,
        program: Sequence[str] = NODE_PROGRAM,
        tls: bool = False,
        sasl: bool = False,
    ) -> LocalCluster:
        """Format the directories (or take up those of an earlier run) and write the properties.

        `ports`: `nodes` client ports, then as many controller ports and http ports, in place of
        those counted from `port`. `settings`: keys of server.properties for every node. `users`: whom
        the cluster knows from its beginning, as `kraft storage format --add-scram` takes them. `program`:
        a module that takes what kraft.node.process takes, and more options for it. `tls`, `sasl`: with
        certificates and users (see security.py); a directory keeps those that it was made with.

        Raises FatalError if a cluster runs there, or one of another size or security lies there.
        """
        directory = directory.absolute()
        table = nodes_from(nodes, port) if ports is None else nodes_at(nodes, ports)
        cluster = cls(directory, new_id(), table, None if detached else os.getpid(), program)
        cluster._owner_process = None if cluster.owner is None else LocalProcess.of(cluster.owner)
        cluster.run, cluster.security = new_id(), planned_security(directory, tls=tls, sasl=sasl)
        cluster.is_made = False
        if not (directory / "cluster.json").exists():
            properties_of_all(table, directory, cluster.security, settings or {})  # if wrong, nothing is made
        try:
            OsDisk().make_dirs(str(directory))
            with alone_in(directory):
                cluster._make(settings or {}, users)
        except OSError as error:
            why = f"cannot write to {directory}: {error.strerror or error}"
            raise FatalError(ExitCode.LOG_DIR_UNUSABLE, why) from None
        return cluster

    def _take_up(self, earlier: LocalCluster) -> None:
        """Be the cluster of an earlier run. Raises FatalError if it runs, or has another size or security."""
        directory, security = self.directory, earlier.security
        refusal = None
        if any(node.process() for node in earlier.nodes.values()):
            refusal = f"a cluster is running in {directory}; `{command('down', directory)}` stops it"
        elif len(earlier.nodes) != len(self.nodes):
            refusal = f"{directory} holds a cluster of {len(earlier.nodes)} nodes, not {len(self.nodes)}"
        elif self.security != PLAINTEXT and self.security.protocol != security.protocol:
            refusal = f"{directory} holds a cluster that speaks {security.protocol}"
        if refusal is not None:
            raise FatalError(ExitCode.LOG_DIR_UNUSABLE, refusal)
        self.cluster_id, self.security, self.is_made = earlier.cluster_id, security, earlier.is_made

    @classmethod
    def attach(cls, directory: Path) -> LocalCluster:
        """A cluster that was made before, by its directory. Raises FatalError if there is none."""
        path = directory.absolute() / "cluster.json"
        try:
            found = json.loads(path.read_text())
            nodes = [LocalNode(**node) for node in found["nodes"]]
            program = found.get("program", NODE_PROGRAM)  # not in files of earlier versions
            beside = {name: LocalProcess(**each) for name, each in found.get("companions", {}).items()}
            security = LocalSecurity(**found.get("security", {}))
            cluster = cls(
                directory.absolute(), found["cluster_id"], nodes, found["owner"], program, beside, security
            )
            cluster.is_made, cluster.run = found.get("is_made", True), found.get("run", "")
            owner = found.get("owner_process")
            cluster._owner_process = None if owner is None else LocalProcess(**owner)
            return cluster
        except FileNotFoundError:
            raise FatalError(
                ExitCode.LOG_DIR_UNUSABLE,
                f"no cluster in {directory}: `{command('up', directory)}` makes one",
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FatalError(ExitCode.LOG_DIR_UNUSABLE, f"cannot read {path}: {error}") from None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT,... of the client listeners."""
        return ",".join(f"{HOST}:{node.client_port}" for node in self.nodes.values())

    @property
    def client_properties(self) -> Path | None:
        """Kafka's client properties, where a client needs any."""
        return None if self.security == PLAINTEXT else self.directory / "client.properties"

    def _note(self, *changed: int | str) -> None:
        """Write down what has become of these nodes and companions. What other processes have written of the
        rest since we read it stays, and a node that one of them has started; to be called in `alone_in`."""
        written = self.attach(self.directory)
        for key in changed:
            if isinstance(key, int):
                if self.nodes[key].pid is not None or written.nodes[key].process() is None:
                    written.nodes[key].take(self.nodes[key])
            elif key in self.companions:
                written.companions[key] = self.companions[key]
            else:
                written.companions.pop(key, None)
        written.save()

    def save(self) -> None:
        """Write cluster.json."""
        content = {
            "bootstrap": self.bootstrap,
            "cluster_id": self.cluster_id,
            "owner": self.owner,
            "owner_process": None if self._owner_process is None else asdict(self._owner_process),
            "run": self.run,
            "is_made": self.is_made,
            "program": self.program,
            "security": asdict(self.security),
            "companions": {name: asdict(each) for name, each in self.companions.items()},
            "nodes": [asdict(node) for node in self.nodes.values()],
        }
        write_private(self.directory / "cluster.json", json.dumps(content, indent=2) + "\n")

    def _make(self, settings: Mapping[str, str], users: Sequence[str]) -> None:
        """In `alone_in`: of two commands at once one makes the cluster, and the other takes it up. Whoever is
        interrupted here goes on the next time: what the cluster is called is written down before any node
        is formatted for it."""
        is_new = not (self.directory / "cluster.json").exists()
        if not is_new:
            self._take_up(self.attach(self.directory))
        elif self.security.ca is not None:
            make_certificates(self.directory)
        files = properties_of_all(self.nodes.values(), self.directory, self.security, settings)
        if not self.is_made:
            self.save()
        for node_id, properties in files.items():
            make_private(self.home(node_id))
            write_private(self.home(node_id) / "server.properties", format_properties(properties))
        for config in map(Config.from_properties, files.values()):
            rng = random.SystemRandom()
            records = [parse_user(each, rng) for each in (*users, *self.security.users())]
            format_storage(
                OsDisk(), config, self.cluster_id, rng, users=records, new_cluster=not self.is_made,
                ignore_formatted=not is_new,
            )  # fmt: skip
        if self.client_properties is not None:
            write_private(self.client_properties, format_properties(self.security.client_properties()))
        self.is_made = True
        self.save()

    def configure(self, node_id: int, settings: Mapping[str, str]) -> None:
        """Add to a node's properties, for its next start."""
        path = self.home(node_id) / "server.properties"
        properties = {**parse_properties(path.read_text()), **settings}
        Config.from_properties(properties)
        write_private(path, format_properties(properties))

    def home(self, node_id: int) -> Path:
        """The directory of a node."""
        return home_of(self.directory, node_id)

    # -- running ----------------------------------------------------------------------------------

    def start(self, patience_s: float = START_PATIENCE_S) -> None:
        """Start every node and wait until all are registered and unfenced."""
        refuse_taken_ports(self.nodes.values())
        self._spawn(list(self.nodes.values()))
        self.wait_ready(patience_s, self.nodes)

    def start_node(self, node_id: int, *, patience_s: float = START_PATIENCE_S, wait: bool = True) -> None:
        """Start one node that is not running; `wait` until the others see it.
        Raises FatalError if it runs already."""
        node = self.node(node_id)
        if node.process() is not None:
            raise FatalError(ExitCode.REFUSED, f"node {node_id} is running already")
        self._spawn([node])
        if wait:
            self.wait_ready(patience_s, (node_id,))

    def start_all(self, patience_s: float = START_PATIENCE_S) -> None:
        """Start every node that is down, and wait until all see each other."""
        self._spawn([node for node in self.nodes.values() if node.process() is None])
        self.wait_ready(patience_s, self.nodes)

    def wait_ready(self, patience_s: float = START_PATIENCE_S, started: Collection[int] = ()) -> None:
        """Until every running node knows every running node as a live broker. Raises FatalError where one
        ends meanwhile; those in `started` may have ended already."""
        with signals_wait():
            # The codec takes a while to import: nodes start meanwhile.
            from kraft.peers.blocking_client import SECURITY, live_brokers

        as_client = copy_context()
        as_client.run(SECURITY.set, self.security.connection())
        deadline = time.monotonic() + patience_s
        running = [n for n in self.nodes.values() if n.id in started or n.process() is not None]
        wanted = {node.id for node in running}
        waiting = list(running)
        while waiting:
            for node in running:
                self._refuse_dead_node(node)
            if time.monotonic() > deadline:
                late = ", ".join(str(node.id) for node in waiting)
                raise FatalError(
                    ExitCode.LOG_DIR_UNUSABLE,
                    f"node {late} did not see all nodes in {patience_s:g} s; node.log in {self.directory} "
                    "may say why",
                )
            with signals_wait():  # a KeyboardInterrupt in a callback of the collector would be lost
                live = as_client.run(live_brokers, HOST, waiting[0].client_port)
            if live >= wanted:
                waiting.pop(0)
            else:
                time.sleep(POLL_S)

    def has_majority(self, started: int | None = None) -> bool:
        """Whether the nodes that run (and one that is to be started) are enough for a metadata quorum."""
        running = sum(node.process() is not None or node.id == started for node in self.nodes.values())
        return 2 * running > len(self.nodes)

    def node(self, node_id: int) -> LocalNode:
        """A node by its id. Raises FatalError if there is none."""
        if node_id not in self.nodes:
            known = ", ".join(map(str, self.nodes))
            raise FatalError(ExitCode.REFUSED, f"there is no node {node_id}; the nodes are {known}")
        return self.nodes[node_id]

    def kill(self, node_id: int) -> None:
        """SIGKILL: what a crash looks like."""
        self._signal(node_id, signal.SIGKILL)
        self._await_end(node_id, STOP_PATIENCE_S)

    def stop(self, node_id: int, patience_s: float = STOP_PATIENCE_S) -> None:
        """SIGTERM: the node hands its leaders over and ends; a paused one goes on for that. Raises FatalError
        if it does not end in time."""
        self._signal(node_id, signal.SIGTERM)
        signal_all([self.nodes[node_id]], signal.SIGCONT)
        self._await_end(node_id, patience_s)

    def _await_end(self, node_id: int, patience_s: float) -> None:
        node = self.nodes[node_id]
        if await_end([node], patience_s):
            raise FatalError(ExitCode.REFUSED, f"node {node_id} did not end within {patience_s:g} s")
        self._forget([node])

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the node is silent when this returns, its connections stay open.

        A thread may stop later than the signal comes back: it is in a system call, or waits for a core. And
        only a process that sleeps as a whole is ended by the system when its owner dies.

        Raises FatalError if it does not stop in time.
        """
        self._signal(node_id, signal.SIGSTOP)
        if not await_stop(self.node(node_id), STOP_PATIENCE_S):
            raise FatalError(ExitCode.REFUSED, f"node {node_id} did not stop within {STOP_PATIENCE_S:g} s")

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._signal(node_id, signal.SIGCONT)

    def close(self, patience_s: float = STOP_PATIENCE_S) -> None:
        """Stop every node, by force where one does not end in time, and then what ran beside them. Raises
        FatalError where even that does not end one."""
        groups = (self.nodes.values(), self.companions.values())
        stays = [each for group in groups for each in end_all(list(group), patience_s, STOP_PATIENCE_S)]
        if stays:
            pids = ", ".join(str(each.pid) for each in stays)
            raise FatalError(ExitCode.REFUSED, f"the system does not end process {pids}")
        names = list(self.companions)
        for name in names:
            self._wait(name)
        self.companions.clear()
        self._forget(list(self.nodes.values()), names)

    def disown(self) -> None:
        """Leave the nodes to themselves: this process ends before them."""
        for child in self._children.values():
            child.returncode = 0  # nothing waits for it here, and that is meant
        self._children.clear()

    def accompany(self, name: str, command: Sequence[str]) -> None:
        """Run a program beside the nodes, its output in DIR/NAME.log. It is ended after them; should the
        owner die first, it has to notice by itself."""
        with alone_in(self.directory), signals_wait():
            child = self._children[name] = self.run_in_background(command, self.directory / f"{name}.log")
            self.companions[name] = LocalProcess.of(child.pid)
            self._note(name)

    def dismiss(self, name: str) -> None:
        """End such a program, by force."""
        companion = self.companions.pop(name)
        signal_all([companion], signal.SIGKILL)
        await_end([companion], STOP_PATIENCE_S)
        self._wait(name)
        self._forget([], [name])

    def reap(self) -> list[tuple[str, int]]:
        """Who ended since the last call, of those that this process started, with their exit codes."""
        ended = [(key, code) for key, child in self._children.items() if (code := child.poll()) is not None]
        for key, _ in ended:
            del self._children[key]
        return [(f"node {key}" if isinstance(key, int) else key, code) for key, code in ended]

    # -- processes --------------------------------------------------------------------------------

    def _spawn(self, nodes: Sequence[LocalNode]) -> None:
        """Start them, and write them down. Raises FatalError where they would end with an owner that is gone,
        or where one runs."""
        owner = self._owner_process
        if owner is not None and (self.run == CALLED_OFF or owner.process() is None):
            raise FatalError(
                ExitCode.REFUSED,
                f"the `kraft up` that the nodes of {self.directory} belong to has ended; "
                f"`{command('up', self.directory)}` starts all of them",
            )
        for node in nodes:
            self._wait(node.id)
        with alone_in(self.directory):
            known = self.attach(self.directory)
            refuse_other(self.run, known.run, self.directory)
            for node in nodes:
                if known.nodes[node.id].process() is not None:  # somebody else was faster
                    raise FatalError(ExitCode.REFUSED, f"node {node.id} is running already")
            with signals_wait():  # what is stopped later is what is written down, for `kraft down` as well
                self._start_and_note(nodes)

    def _start_and_note(self, nodes: Sequence[LocalNode]) -> None:
        started: list[LocalNode] = []
        try:
            for node in nodes:
                started.append(node)
                self._start_process(node)
            self._note(*(node.id for node in nodes))
        except BaseException:
            for node in started:
                self._wait(node.id)
                node.pid = None
            raise

    def _start_process(self, node: LocalNode) -> None:
        home = self.home(node.id)
        module, *options = self.program
        arguments = [str(home / "server.properties")]
        if self.owner is not None:
            arguments += ["--with", str(self.owner)]
        log = home / "node.log"
        self._logged[node.id] = log.stat().st_size if log.exists() else 0
        child = self._children[node.id] = self.launch(module, [*arguments, *options], log)
        node.began(child.pid)

    def launch(self, module: str, arguments: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        """Start a node's process."""
        return self.run_in_background(own_packages.python(module, *arguments), output)

    def run_in_background(self, command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        """We end the nodes in order: a terminal's Ctrl-C must not reach them."""
        return start_in_background(command, output, in_our_session=self.owner == os.getpid())

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        process = self.node(node_id).process()
        if process is None:
            raise FatalError(ExitCode.REFUSED, f"node {node_id} is not running")
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)

    def _forget(self, nodes: Sequence[LocalNode], companions: Sequence[str] = ()) -> None:
        for node in nodes:
            self._wait(node.id)
            node.pid = None
        # Where nothing can be written (a full disk, a directory that is gone) they have ended all the same.
        with contextlib.suppress(OSError, FatalError), alone_in(self.directory):
            self._note(*(node.id for node in nodes), *companions)

    def _wait(self, key: int | str) -> None:
        """Wait for a child that has ended, or is about to."""
        child = self._children.pop(key, None)
        if child is not None:
            end_of(child, STOP_PATIENCE_S)

    def _refuse_dead_node(self, node: LocalNode) -> None:
        if node.process() is not None:
            return
        refuse_other(self.run, self.attach(self.directory).run, self.directory)
        child, log = self._children.get(node.id), self.home(node.id) / "node.log"
        if child is None:
            raise FatalError(ExitCode.REFUSED, f"node {node.id} has ended; {log} may say why")
        code = end_of(child, STOP_PATIENCE_S)
        said = last_line(log, self._logged[node.id]).removeprefix("kraft: ") if code > 0 else ""
        known = ExitCode(code) if code in ExitCode.__members__.values() else ExitCode.LOG_DIR_UNUSABLE
        raise FatalError(known, f"node {node.id}: {said or how_ended(code)}")
