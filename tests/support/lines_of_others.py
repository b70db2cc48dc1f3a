"""Command lines that others wrote: scripts, workflows, recipes and documentation of 79 packages of PyPI and npm.

Drawn from 5,683 lines: 300 that are made of more than words, 200 that are not. Bash itself, with a function in place of
each program, told which commands they run, and only lines were drawn of which each command has a rule below. So all of
them should run without a question.
"""

from pathlib import Path

PROGRAMS = """
awk basename bash black bun bunx cargo cat celery chmod coverage cp cross-env curl cut date docker dot env eslint
ffmpeg find gh git grep grunt gulp hatch head http id isort java javac jest jq kubectl less ls mkdir mocha mv next
node npm npm-run-all npx nyc openssl pip pnpm poetry prettier ps python rg rollup run-s sed sh sort sphinx-build
tail tar touch tr tsc tslint tsx turbo twine uniq uv uvx vercel vitest wc webpack wget which xargs xo yarn
"""
OPTIONS = ("echo *", "printf *", "git -C *", "find * -delete", "sed -i *", "curl * -o *", "git config *")
POLICY = {
    "allow": [
        *(f"execute_bash({name})" for name in [*(f"{name} *" for name in PROGRAMS.split()), *OPTIONS]),
        "write_file",
    ],
    "deny": ["execute_bash(rm *)", "execute_bash(git push *)", "execute_bash(sudo *)"],
}
LINES = Path(__file__).with_suffix(".txt").read_text().splitlines()
