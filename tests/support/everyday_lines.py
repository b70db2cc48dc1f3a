"""Command lines of an ordinary day of a coding agent, and the rules of a careful team."""

ALLOWED = """
awk basename black cargo cat cmp column comm cp curl cut date df diff dirname du echo env eslint file find gcc g++ go
grep gunzip gzip head id jest jq ln ls make md5sum mkdir mv mypy nl node npm npx paste perl pip pip3 pnpm prettier
printf ps pwd pytest python python3 readlink realpath rg ruff rustc sed seq sha256sum sleep sort stat tail tar tee
touch tr tree tsc uname uniq unzip uv wc which whoami xargs yarn zip
"""
GIT = "add blame branch checkout cherry-pick commit diff fetch grep log ls-files merge mv pull rebase remote restore"
GIT = f"{GIT} rev-parse show stash status switch tag worktree"
POLICY = {
    "allow": [
        *(f"execute_bash({name} *)" for name in ALLOWED.split()),
        *(f"execute_bash(git {name} *)" for name in GIT.split()),
        *("execute_bash(git -C * *)", "execute_bash(find * -delete)", "execute_bash(sed -i *)"),
        *("execute_bash(sed -i.bak *)", "execute_bash(tar * -C *)", "execute_bash(curl * -o *)"),
        *(
            "execute_bash(sort * -o *)",
            "execute_bash(./gradlew *)",
            "execute_bash(./scripts/build.sh *)",
            "execute_bash(./scripts/check.sh *)",
            "execute_bash(git --no-pager log *)",
            "execute_bash(git --no-pager diff *)",
            "write_file",
        ),
        *("execute_bash(chmod +x *)", "execute_bash(unzip * -d *)", "execute_bash(ruff * --output-file *)"),
    ],
    "deny": ["execute_bash(rm *)", "execute_bash(git push *)", "execute_bash(sudo *)", "*(secrets/**)"],
}

EVERYDAY = [
    *r"""
ls
ls -la
ls -la src tests
ls *.md
ls -1 src/*.py | wc -l
ls -lh dist/ 2>/dev/null
ls -R src | head -50
pwd
pwd && ls
whoami 2>/dev/null || id
cat README.md
cat package.json | jq .scripts
cat src/main.py src/util.py
cat -n src/app.ts | sed -n '20,60p'
cat pyproject.toml | head -40
head -100 src/main.py
head -n 20 CHANGELOG.md
tail -n 50 logs/app.log
tail -20 out.log
wc -l src/*.py
wc -l $(git ls-files '*.py')
sed -n 1,120p src/main.py
sed -n '120,200p' loom/app.py
sed -n '/def main/,/return/p' src/main.py
sed -i 's/foo/bar/g' src/main.py
sed -i.bak 's/1.2.3/1.2.4/' pyproject.toml
sed -i 's|http://|https://|g' docs/index.md
sed 's/^ *//' notes.txt | sort -u
sed -E 's/[0-9]+/N/g' log.txt | sort | uniq -c | sort -rn | head
sed '/^#/d' config.ini
grep -rn "TODO" src
grep -rn 'def test_' tests | wc -l
grep -n "import os" src/*.py
grep -rIl 'old_name' src tests
grep -rn --include='*.py' 'class .*Error' .
grep -E '^(feat|fix)' CHANGELOG.md
grep -c error build.log
grep -v '^#' requirements.txt | sort
grep -q pytest requirements.txt && echo yes || echo no
grep -A3 -B2 'def handler' src/api.py
grep -rn "useState" web/src --include=*.tsx | head -20
grep -oP '(?<=version = ")[^"]+' Cargo.toml
rg -n 'fn main' src
rg --files | head -100
rg -l 'TODO|FIXME' -g '*.rs'
rg -n "createServer" --type ts -C 3
find . -name '*.py' | head -20
find . -type f -name '*.ts' -not -path './node_modules/*'
find . -name '*.pyc' -delete
find src -name '*.go' -newer go.mod
find . -maxdepth 2 -type d | sort
find . -name '*.py' -exec grep -l 'import re' {} +
find . -type f -size +1M -exec ls -lh {} \;
find tests -name 'test_*.py' | xargs wc -l
find . -name '*.md' -print0 | xargs -0 grep -n 'TODO'
find . -type f | sed 's/.*\.//' | sort | uniq -c | sort -rn
find . \( -name '*.js' -o -name '*.ts' \) -print | head
find . -name node_modules -prune -o -name '*.json' -print
find src -type f -name '*.py' | sort | head -n 30
tree -L 2 -I 'node_modules|dist'
tree src
du -sh .
du -sh * | sort -h | tail
df -h .
file dist/app
stat -c '%s %n' README.md
which python3 node go cargo
which node && node --version
uname -a
date
date +%Y-%m-%d
env | sort | head
echo $PATH
echo "$HOME"
echo done
echo "exit: $?"
printf '%s\n' a b c
mkdir -p src/new/module
mkdir -p build && cd build && ls
cp src/a.py src/b.py
cp -r templates/base templates/new
mv old.txt new.txt
touch src/__init__.py
ln -s ../shared shared
chmod +x scripts/build.sh
basename "$PWD"
dirname src/main.py
realpath .
sort names.txt | uniq -c
sort -t, -k2 -n data.csv | head
sort -u a.txt b.txt -o all.txt
cut -d, -f1,3 data.csv | head -5
tr 'a-z' 'A-Z' < names.txt
tr -d '\r' < dos.txt > unix.txt
paste -d, a.txt b.txt
comm -12 a.txt b.txt
diff -u a.py b.py
diff -r old new | head -40
diff <(sort a) <(sort b)
cmp a.bin b.bin
awk '{print $1}' access.log | sort | uniq -c
awk -F, 'NR>1 {sum+=$3} END {print sum}' data.csv
awk 'length($0) == 100' src/main.py
awk -F: '{print $1}' /etc/passwd | head -3
jq '.dependencies' package.json
jq -r '.[] | .name' items.json
jq -r '.scripts | keys[]' package.json | sort
curl -s https://example.com/api | jq .
curl -sSL -o data.json https://example.com/data.json
curl -I https://example.com
curl -s -w '%{http_code}\n' https://example.com/health
tar czf out.tgz dist
tar xzf out.tgz -C tmp
tar tzf out.tgz | head
unzip -l pkg.zip
unzip pkg.zip -d tmp
zip -r out.zip dist
gzip -k data.csv
gunzip -c data.csv.gz | head -3
sha256sum dist/*
md5sum a.txt
seq 1 10
sleep 2
ps aux | grep node
xargs -n1 echo < list.txt
tee out.txt < in.txt > /dev/null
nl -ba src/main.py | sed -n '10,20p'
git status
git status --short
git status --porcelain -uno
git status && git diff --stat
git log --oneline -10
git log --oneline --graph --all | head -20
git log -p -1 -- src/main.py
git log --since='2 weeks ago' --format='%h %an %s'
git log -S'old_name' --oneline
git log main..HEAD --oneline
git diff
git diff --stat
git diff HEAD~1 -- src
git diff --name-only main...HEAD
git diff --cached
git diff | head -200
git diff -U0 | grep '^+' | wc -l
git show HEAD --stat
git show HEAD:src/main.py | head -20
git show --name-only --format= HEAD
git blame -L 10,20 src/main.py
git add src/main.py
git add -A
git add -A && git commit -m "Add the parser"
git add ./*.py
git add src tests && git status --short
git commit -m "Fix the build"
git commit -am 'Mend a typo in the docs'
git commit --amend --no-edit
git commit -m "Add a flag" -m "It says what happens."
git checkout -b feature/x
git checkout main -- src/main.py
git checkout -
git switch -c fix/y
git restore --staged src/main.py
git branch -a
git branch --show-current
git stash && git stash pop
git stash list
git fetch origin
git fetch --all --prune
git pull --rebase
git pull --rebase origin main
git merge --no-ff feature/x
git rebase main
git rebase --continue
git rebase --abort
git remote -v
git rev-parse HEAD
git rev-parse --show-toplevel
git rev-parse --abbrev-ref HEAD
git ls-files | head -50
git ls-files '*.py' | xargs wc -l | tail -1
git grep -n 'TODO' -- src
git tag -l
git worktree list
git cherry-pick abc1234
git mv a.py b.py
git -C sub status
git --no-pager log -5
git --no-pager diff | cat
cd src && git status
cd web && npm test
cd web && npm ci && npm run build
cd web && npm install --silent 2>&1 | tail -5
cd backend && python -m pytest -q
cd packages/core && npx tsc --noEmit
cd src; ls; cd ..
cd src && grep -rn handler . | head
(cd web && npm run lint)
npm install
npm ci
npm test
npm test -- --watch=false
npm test 2>&1 | tail -30
npm run build
npm run lint -- --fix
npm run build && ls dist
npm ls --depth=0
npm outdated || true
npm audit --production
CI=1 npm test
CI=true npm test -- --coverage
NODE_ENV=test npm test
NODE_ENV=production npm run build > build.log 2>&1
npx tsc --noEmit
npx eslint src --ext .ts,.tsx
npx prettier --check .
npx jest src/app.test.ts -t 'renders'
yarn install --frozen-lockfile
yarn test
pnpm install
pnpm -r test
node --version
node scripts/gen.js
node -e "console.log(1+1)"
node -p "require('./package.json').version"
tsc -p tsconfig.json
eslint . --max-warnings 0
prettier --write src/app.ts
python --version
python3 main.py --help
python -m pytest
python -m pytest -q tests/unit
python -m pytest -x --tb=short 2>&1 | tail -40
python -m pytest tests/test_a.py::test_b -vv
python -m pip install -e '.[test]'
python -m venv .venv
python -c "import sys; print(sys.version)"
python -c 'import json; print(json.load(open("a.json"))["x"])'
python3 - <<'PY'\nimport os\nprint(os.getcwd())\nPY
python manage.py migrate
python -m mypy src
python -m http.server 8000 &
pytest
pytest -q
pytest -q -x tests
pytest -q tests/unit -k 'not slow'
pytest -q 2>&1 | tail -20
pytest --cov=src --cov-report=term-missing
pytest tests/test_api.py -n 4 --maxfail=1
timeout 60 pytest -q
timeout 120 npm test
timeout 30 python main.py > out.txt 2>&1
time pytest -q
PYTHONUNBUFFERED=1 python main.py | tee run.log
PYTHONDONTWRITEBYTECODE=1 pytest -q
PYTHONPATH=src python -m app
DEBUG=1 python main.py
LC_ALL=C sort words.txt
pip install -r requirements.txt
pip install requests==2.31.0
pip list | grep -i django
pip show pytest
pip freeze > requirements.lock
uv sync
uv run pytest -q
ruff check .
ruff check --fix src
ruff format --check .
ruff check --output-file out.json src
black --check src
mypy src
mypy --strict src 2>&1 | tail -5
make
make test
make build 2>&1 | tail -20
make -j4
make lint test
go build ./...
go test ./...
go test -run TestParse ./pkg/parser -v
go test -race -count=1 ./... 2>&1 | tail -30
go vet ./... && go test ./...
go mod tidy
go run ./cmd/server --port 8080
GOOS=linux GOARCH=amd64 go build -o dist/app ./cmd/app
CGO_ENABLED=0 go build ./...
cargo build
cargo build --release 2>&1 | tail -5
cargo test
cargo test parser:: -- --nocapture
cargo clippy --all-targets -- -D warnings
cargo fmt --check
RUST_BACKTRACE=1 cargo test
RUST_LOG=debug cargo run -- --help
rustc --version && cargo --version
gcc -Wall -O2 -o app main.c && ./scripts/build.sh
g++ -std=c++17 -o t t.cpp
./gradlew test
./gradlew build --info | tail -50
./scripts/build.sh
./scripts/check.sh --fast 2>&1 | tee check.log
perl -pe 's/a/b/' in.txt > out.txt
echo "hello" > hello.txt
echo "line" >> notes.txt
echo 'export default {}' > src/config.js
printf 'a\nb\n' > list.txt
cat a.txt b.txt > c.txt
cat <<'EOF' > src/new.py\nimport os\n\ndef f():\n    return "$HOME"\nEOF
cat > notes.md <<EOF\n# Notes\n- one\nEOF
cat >> .gitignore <<'EOF'\ndist/\n*.log\nEOF
tee src/x.txt <<'EOF'\nhello\nEOF
npm test > test.log 2>&1; tail -20 test.log
npm test &> test.log || tail -20 test.log
make test >/dev/null 2>&1 && echo ok || echo failed
pytest -q 2>/dev/null
pytest -q; echo "exit $?"
ls missing 2>&1 | head -1
for f in src/*.py; do echo "== $f"; head -5 "$f"; done
for f in a b c; do mkdir -p "pkg/$f"; touch "pkg/$f/__init__.py"; done
for i in 1 2 3; do pytest -q tests/test_flaky.py; done
for f in $(git ls-files '*.py'); do wc -l $f; done
for d in web api; do (cd web && npm test); done
for t in unit integration; do python -m pytest -q tests/$t || break; done
for i in {1..5}; do curl -s localhost:8080/health && break; sleep 1; done
while read -r line; do echo "$line"; done < list.txt
while ! curl -s localhost:8080 > /dev/null; do sleep 1; done
until curl -sf localhost:3000; do sleep 1; done
if [ -f package.json ]; then npm test; else pytest -q; fi
if grep -q vitest package.json; then npx vitest run; fi
if [ "$CI" = "true" ]; then echo ci; fi
[ -d dist ] && ls dist || echo none
[ -f .env ] || cp .env.example .env
test -f Makefile && make test
test -d node_modules || npm ci
[ -n "$VIRTUAL_ENV" ] && echo "$VIRTUAL_ENV"
! grep -rn 'console.log' src
{ echo "# Log"; git log --oneline -5; } > LOG.md
(pytest -q tests/a &) ; pytest -q tests/b
ls | grep -v test | head -3
ls src/{api,core}/*.py
cp config/{dev,prod}.yaml
mkdir -p app/{models,views,tests}
mv src/a.py src/core/a.py && git add -A
git diff --name-only | xargs ruff check
git diff --name-only | grep '\.py$' | xargs ruff check
git log --format=%an | sort | uniq -c | sort -rn
grep -rl old src | xargs sed -i 's/old/new/g'
cat requirements*.txt | sort -u
python - <<EOF\nprint("hi")\nEOF
# run the tests\npytest -q
npm run build &&\n  npm test
pytest \\n  -q \\n  tests/unit
npm run dev > dev.log 2>&1 &
node server.js & sleep 2; curl -s localhost:3000
""".strip("\n").split("\n"),
]
EVERYDAY = [
    line.replace("\\n", "\n") if "<<" in line or line.startswith(("#", "npm run build &&", "pytest \\")) else line
    for line in EVERYDAY
]

READING_ALL = r"""
grep -rn --include='*.py' 'class .*Error' .
find . -name '*.pyc' -delete
find . -name '*.py' -exec grep -l 'import re' {} +
find . -name '*.md' -print0 | xargs -0 grep -n 'TODO'
git ls-files '*.py' | xargs wc -l | tail -1
npx prettier --check .
eslint . --max-warnings 0
ruff check .
ruff format --check .
""".strip().split("\n")
"""Asked rightly: each reads or changes all that is there, in `secrets` too."""

NEEDLESS = {
    "what xargs and `$(…)` give is not told": [
        *("wc -l $(git ls-files '*.py')", "for f in $(git ls-files '*.py'); do wc -l $f; done"),
        *("find tests -name 'test_*.py' | xargs wc -l", "git diff --name-only | xargs ruff check"),
        *("git diff --name-only | grep '\\.py$' | xargs ruff check", "grep -rl old src | xargs sed -i 's/old/new/g'"),
    ],
    "where a line is after it has gone elsewhere is not followed": [
        *("cd src; ls; cd ..", "cd src && grep -rn handler . | head"),
    ],
}
"""Asked although nothing of it is forbidden, by the reason."""
