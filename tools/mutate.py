#!/usr/bin/env python3
"""Plants small faults (tools/mutations.py), one at a time, in a copy of this checkout, and shows that tests fail.

  mutate.py                every fault; "killed by TEST" or "SURVIVED" for each, exit 1 when one survives
  mutate.py --only NAME    faults whose name or area is NAME (may be given several times)
  mutate.py --list         names, areas and what each breaks
  mutate.py --check        only: every text to replace is found exactly once (a test of every build)

The copy lies in a temporary directory; this checkout is not touched. Builds are incremental and go through ccache.
Before any fault the tests run without one: a test that fails then says nothing about faults and is left out, and the
exit is 1. A test program that does not end within the time limit is a kill too.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # no __pycache__ in the checkout
import draft_mutations  # noqa: E402,F401 (adds to the list)
import gather_mutations  # noqa: E402,F401
from mutations import MUTATIONS  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COPIED = ["CMakeLists.txt", "cli", "cmake", "fuzz", "include", "src", "tests", "tools"]
NOT_COPIED = shutil.ignore_patterns("golden", "__pycache__")
# Cheap programs first. The command line's tests need the program and know nothing of the cache.
PROGRAMS = ["policy_test", "cache_test", "ops_test", "device_test", "graph_test", "engine_test", "golden_test", "step_test",
            "nn_test"]
# Of the golden cases those of drafts alone: what is drafted changes no text, so that nothing else looks at it.
FILTER = {"step_test": ["Cli*"],
          "golden_test": ["GoldenModel*", "GoldenOffload*", "GoldenGather*", "GoldenTokenizers*"]}
# The program that a fault of an area most likely fails in, before the others.
FIRST = {"checks": "device_test", "verification": "engine_test", "mtp": "golden_test", "graph": "graph_test"}
FIRST |= {area: "ops_test" for area in ("plan", "serve", "gather", "install", "declarations")}


class BuildError(Exception):
    pass


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def label(mutation):
    return f"{mutation.area}/{mutation.name}"


def pattern_of(old):
    """Finds `old` in any formatting: between its tokens there may be any white space."""
    tokens = re.findall(r"\w+|[^\w\s]", old)
    words = [re.match(r"\w", token) is not None for token in tokens]
    pattern = r"\b" if words[0] else ""
    for i, token in enumerate(tokens):
        if i > 0:
            pattern += r"\s+" if words[i - 1] and words[i] else r"\s*"
        pattern += re.escape(token)
    return re.compile(pattern + (r"\b" if words[-1] else ""))


def check(root):
    """One sentence for every edit that cannot be made."""
    labels = [label(mutation) for mutation in MUTATIONS]
    problems = [f"{name}: the name is used twice" for name in sorted({x for x in labels if labels.count(x) > 1})]
    for mutation in MUTATIONS:
        for file, old, _ in mutation.edits:
            path = os.path.join(root, file)
            count = len(pattern_of(old).findall(read(path))) if os.path.exists(path) else 0
            if count != 1:
                problems.append(f"{label(mutation)}: {count} times in {file}, not once: {old.strip().splitlines()[0]}")
    return problems


class Workspace:
    """The copy, its build, and the tests in it."""

    def __init__(self, directory, jobs, schedules, limit):
        self.root, self.build_dir = directory, os.path.join(directory, "build")
        self.jobs, self.limit = jobs, limit
        self.environment = dict(os.environ, TIDEPOOL_SCHEDULES=str(schedules), TIDEPOOL_SOURCE_DIR=directory,
                                TIDEPOOL_GOLDEN_DIR=os.path.join(ROOT, "tests", "golden"),
                                CCACHE_BASEDIR=directory, CCACHE_NOHASHDIR="1", TMPDIR=os.path.join(directory, "tmp"))
        self.skipped = {name: list(FILTER.get(name, [])) for name in PROGRAMS}
        os.makedirs(self.environment["TMPDIR"])
        for name in COPIED:
            source, target = os.path.join(ROOT, name), os.path.join(directory, name)
            if os.path.isdir(source):
                shutil.copytree(source, target, ignore=NOT_COPIED)
            elif os.path.exists(source):
                shutil.copy2(source, target)

    def command(self, arguments, limit=None):
        """Exit code and output; code None: it did not end in time."""
        try:
            done = subprocess.run(["nice", "-n", "10", *arguments], cwd=self.root, env=self.environment, timeout=limit,
                                  text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  check=False)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            return None, (late.stdout or b"").decode(errors="replace")

    def configure(self):
        code, output = self.command(["cmake", "-G", "Ninja", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"])
        if code != 0:
            raise BuildError(output)
        _, targets = self.command(["ninja", "-C", "build", "-t", "targets", "all"])
        return [name for name in PROGRAMS if re.search(rf"^{name}: ", targets, re.MULTILINE)]

    def build(self, targets):
        code, output = self.command(["ninja", "-C", "build", f"-j{self.jobs}", *targets])
        if code != 0:
            lines = [line for line in output.splitlines() if "error" in line or line.startswith("FAILED")]
            raise BuildError("\n".join(lines)[:2000])

    def run(self, program, stop_at_first):
        """The tests that fail; a crash or a hang names the test it happened in."""
        arguments = [os.path.join("build", program)]
        if self.skipped[program]:
            arguments.append("--gtest_filter=-" + ":".join(self.skipped[program]))
        if stop_at_first:
            arguments.append("--gtest_fail_fast")
        code, output = self.command(arguments, self.limit)
        failed = list(dict.fromkeys(re.findall(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", output, re.MULTILINE)))
        if code != 0 and not failed:
            started = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE) or [program]
            failed = [started[-1] + (" (time limit)" if code is None else f" (exit {code})")]
        return failed


def baseline(workspace, programs):
    """Tests that fail without a fault; they are left out from here on."""
    failing = []
    for program in programs:
        tests = workspace.run(program, stop_at_first=False)
        failing += [f"{program}: {test}" for test in tests]
        workspace.skipped[program] += [test.split(" ")[0] for test in tests]
    return failing


def verdict(workspace, mutation, programs):
    """The first test that fails with the mutation planted; None when it survives."""
    originals = {file: read(os.path.join(workspace.root, file)) for file, _, _ in mutation.edits}
    try:
        for file, old, new in mutation.edits:
            path = os.path.join(workspace.root, file)
            write(path, pattern_of(old).sub(lambda _: new, read(path)))
        first = FIRST.get(mutation.area)
        for program in sorted(programs, key=lambda name: name != first):
            workspace.build([program])
            failed = workspace.run(program, stop_at_first=True)
            if failed:
                return f"{program}: {failed[0]}"
        return None
    finally:
        for file, text in originals.items():
            write(os.path.join(workspace.root, file), text)


def plant_all(workspace, mutations):
    start = time.monotonic()
    programs = workspace.configure()
    workspace.build(programs)
    failing = baseline(workspace, programs)
    for test in failing:
        print(f"fails without a fault, left out: {test}", flush=True)
    print(f"{', '.join(programs)} built and run in {time.monotonic() - start:.0f} s", flush=True)
    survived, broken = [], []
    for mutation in mutations:
        begin = time.monotonic()
        try:
            killer = verdict(workspace, mutation, programs)
            result = f"killed by {killer}" if killer else "SURVIVED"
            survived += [] if killer else [label(mutation)]
        except BuildError as error:
            result = f"DOES NOT BUILD\n{error}"
            broken.append(label(mutation))
        print(f"{label(mutation)}: {result} [{time.monotonic() - begin:.0f} s]", flush=True)
    killed = len(mutations) - len(survived) - len(broken)
    print(f"{killed} of {len(mutations)} killed, {len(survived)} survived, {len(broken)} do not build, "
          f"{len(failing)} tests fail without a fault; {time.monotonic() - start:.0f} s")
    for name in survived + broken:
        print(f"  {name}")
    return 1 if survived or broken or failing else 0


def main():
    parser = argparse.ArgumentParser(description="plants small faults and shows that the tests find them")
    parser.add_argument("--check", action="store_true", help="only check that every fault can still be planted")
    parser.add_argument("--list", action="store_true", help="list the faults")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a fault or an area")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilations at a time")
    parser.add_argument("--schedules", type=int, default=60, help="random schedules of the transparency test")
    parser.add_argument("--time-limit", type=int, default=180, help="seconds that one test program may take")
    args = parser.parse_args()
    if args.list:
        for m in MUTATIONS:
            print(f"{label(m)}: {m.breaks}")
        return 0
    problems = check(ROOT)
    for problem in problems:
        print(problem)
    if args.check:
        print(f"{len(MUTATIONS)} faults, {len(problems)} cannot be planted")
    if problems or args.check:
        return 1 if problems else 0
    chosen = [m for m in MUTATIONS if not args.only or {m.name, m.area, label(m)} & set(args.only)]
    if not chosen:
        print(f"no fault is called {', '.join(args.only)}; see --list")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the copy is removed
    directory = tempfile.mkdtemp(prefix="tidepool-mutate-")
    try:
        return plant_all(Workspace(directory, args.jobs, args.schedules, args.time_limit), chosen)
    except BuildError as error:
        print(f"the checkout does not build without a fault:\n{error}")
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
