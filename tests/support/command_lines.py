"""Command lines that a rule must not be walked around with."""

HIDDEN_RM = [
    *r"""
rm x
\rm x
r\m x
r''m x
r""m x
'rm' x
"rm" x
r'm' x
$'rm' x
$"rm" x
$'\x72m' x
r$@m x
r${x}m x
$(echo rm) x
`echo rm` x
{rm,x}
/bin/rm x
/usr/bin/rm x
./rm x
../../bin/rm x
/bin/r? x
/bin/r* x
/???/rm x
/bin/[r]m x
command rm x
command -p rm x
builtin command rm x
exec rm x
exec -a y rm x
eval rm x
eval 'rm x'
eval "r""m x"
eval 'r''m' x
eval "$(echo rm x)"
env rm x
env A=b rm x
env -i rm x
env -u A rm x
env -S 'rm x'
env -S'rm x'
env --split-string='rm x'
/usr/bin/env rm x
A=b rm x
A=b B=c rm x
sudo rm x
sudo -u root rm x
sudo -- rm x
sudo sudo rm x
sudo env A=b nice rm x
doas rm x
su -c 'rm x'
su root -c 'rm x'
su -c'rm x' root
nice rm x
nice -n 5 rm x
nohup rm x
setsid rm x
stdbuf -o0 rm x
ionice -c3 rm x
chrt 1 rm x
taskset 1 rm x
timeout 5 rm x
timeout -s KILL 5 rm x
time rm x
time -p rm x
flock f rm x
flock f -c 'rm x'
strace rm x
unshare rm x
chroot / rm x
busybox rm x
toybox rm x
xargs rm
xargs -0 rm
echo x | xargs rm
echo x | xargs -I{} rm {}
echo x | xargs sh -c 'rm x'
find . -exec rm {} \;
find . -exec rm {} +
find . -execdir rm {} \;
find . -ok rm {} \;
find . -exec sh -c 'rm x' \;
fd . -x rm
parallel rm ::: x
watch 'rm x'
watch rm x
script -c 'rm x'
ssh host rm x
ssh host 'rm x'
bash -c 'rm x'
bash -c "rm x"
bash -c rm
bash -xc 'rm x'
bash -lc 'rm x'
bash --norc -c 'rm x'
bash -c "bash -c 'rm x'"
bash -c 'sh -c "rm x"'
bash -c "$X"
bash -c 'echo a; rm x'
sh -c 'rm x'
dash -c 'rm x'
zsh -c 'rm x'
busybox sh -c 'rm x'
sudo bash -c 'rm x'
echo rm x | sh
echo rm x | bash
echo rm x | bash -s
echo rm x | sudo bash
echo cm0geA== | base64 -d | sh
bash <<< 'rm x'
bash /dev/stdin
bash -s x
bash < <(echo rm x)
source <(echo rm x)
. <(echo rm x)
source /dev/stdin
echo $(rm x)
echo `rm x`
echo "$(rm x)"
echo "`rm x`"
echo "a $(echo "b $(rm x)")"
echo <(rm x)
echo >(rm x)
echo ${a:-$(rm x)}
echo ${a:-`rm x`}
echo $((a[$(rm x)]))
echo $[ $(rm x) ]
echo a > $(rm x)
echo a >> "$(rm x)"
cat < <(rm x)
A=$(rm x)
A=`rm x` echo
A[$(rm x)]=1
export A=$(rm x)
declare A=$(rm x)
local A=`rm x`
readonly A=$(rm x)
[[ -n $(rm x) ]]
[ -n "$(rm x)" ]
test -n "$(rm x)"
(( a[$(rm x)] ))
echo a; rm x
echo a;rm x
echo a && rm x
echo a&&rm x
echo a || rm x
echo a | rm x
echo a |& rm x
echo a & rm x
echo a&rm x
rm x &
(rm x)
( rm x )
{ rm x; }
! rm x
if rm x; then echo; fi
if true; then rm x; fi
if true; then echo; else rm x; fi
while rm x; do break; done
while true; do rm x; done
until rm x; do echo; done
for i in 1; do rm x; done
for i in $(rm x); do echo; done
case x in x) rm x;; esac
case $(rm x) in x) echo;; esac
select i in x; do rm x; done
f() { rm x; }; f
function f { rm x; }; f
f() (rm x); f
coproc rm x
trap 'rm x' EXIT
alias e=rm; e x
alias e='rm x'; e
X=rm; $X x
X=rm; "$X" x
X=rm; ${X} x
IFS=,; $X
$X
$1 x
"$@"
printf -v X rm; $X x
set -- rm x; "$@"
git -c alias.x='!rm x' x
git -c core.pager='rm x' log
git -c core.sshCommand='rm x' fetch
git --exec-path=. -c alias.x='!rm x' x
git bisect run rm x
git rebase --exec 'rm x'
git rebase -x 'rm x'
git submodule foreach 'rm x'
tar cf a b --checkpoint-action=exec='rm x'
tar xf a --to-command='rm x'
tar xf a --use-compress-program='rm x'
tar -I 'rm x' -xf a
rsync -e 'rm x' a b
npx rm x
docker run i rm x
docker exec c rm x
kubectl exec p -- rm x
systemd-run rm x
>f rm x
2>&1 rm x
<f rm x
rm>x
rm<x
rm
echo 'unfinished; rm x
echo "unfinished; rm x
echo $(rm x
if true; then rm x
PS4='$(rm x)'; set -x; echo
PS4='$(rm x)' bash -xc :
BASH_CMDS[echo]=/bin/rm; echo x
BASH_ALIASES[e]=rm
X='$(rm x)'; echo ${X@P}
echo ${x@P}
X='a[$(rm x)]'; echo $((X))
X='a[$(rm x)]'; ((X))
declare -i n; n='a[$(rm x)]'
[ -v 'a[$(rm x)]' ]
[[ -v 'a[$(rm x)]' ]]
bind -x '"a":rm x'
r$""m x
r$"m" x
xargs -I % sh -c '%' <<< 'rm x'
at now <<< 'rm x'
batch <<< 'rm x'
crontab - <<< '* * * * * rm x'
ed -c x <<< '!rm x'
tclsh <<< 'exec rm x'
python3 - <<< 'import os; os.system("rm x")'
sed '1e rm x' f
GIT_SSH_COMMAND='rm x' git fetch
GIT_EXTERNAL_DIFF='rm x' git diff
GIT_EDITOR='rm x' git commit
PAGER=rm git log
PAGER='rm x' git log
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.pager GIT_CONFIG_VALUE_0='rm x' git log
export GIT_PAGER='rm x'; git log
LESSOPEN='|rm x' less f
git fetch 'ext::sh -c "rm x"'
git clone -u 'rm x' a
perl -e 'system("rm x")'
python3 -c 'import os; os.system("rm x")'
php -r 'system("rm x");'
lua -e 'os.execute("rm x")'
expect -c 'spawn rm x'
socat - EXEC:'rm x'
dialog --prgbox 'rm x' 1 1
apt-get -o APT::Update::Pre-Invoke::='rm x' update
dpkg -i x.deb --pre-invoke='rm x'
xvfb-run rm x
choom -n 1 -- rm x
numactl -N0 rm x
sg g 'rm x'
xterm -e rm x
systemd-inhibit rm x
nix-shell --run 'rm x'
direnv exec . rm x
pipenv run rm x
bundle exec rm x
corepack yarn exec rm
printf -v c %s rm; "$c" x
mapfile -C 'rm x' -c 1 a < f
compgen -C 'rm x'
coproc X { rm x; }
trap -- 'rm x' DEBUG
hash -p /bin/rm echo; echo x
wait -p 'a[$(rm x)]'
getopts a 'a[$(rm x)]'
exec {fd}< <(rm x)
declare -n r=X; X=rm; $r x
eval `base64 -d <<< cm0geA==`
/bin/{rm,x} y
{/bin/,}rm x
IFS=_; X=rm_x; $X
diff3 --diff-program=rm x y f
for f in -v -n; do [ "$f" 'a[$(rm x)]' ]; done
for f in '-v a[`rm<x`]' b; do [ $f ]; done
for f in -v -R; do test -z x -o "$f" 'a[$(rm x)]'; done
mkdir 1; cp bin/rm 1/ls; printf 'a%n' PATH; ls x
mkdir 2; cp bin/rm 2/ls; for f in n n; do printf "ab%$f" PATH; ls x; done
git --shallow-file status -c alias.z='!rm x' z
echo x | find . -maxdepth 0 -exec xargs -I + rm + \;
for i in '1 rm' '1 rm'; do echo x | xargs -n$i; done
for i in '5 rm' '5 rm'; do nice -n $i x; done
for i in '1 rm x' '1 rm x'; do env CI=$i; done
for i in ' -name x -exec rm {} ;' b; do find .$i; done
touch -- -exec; find . -name x -exe* rm {} \;
for f in exec exec; do find . -name x -"$f" rm {} \; ; done
for f in If If; do tar c"$f" 'rm x' o f; done
echo 'a/p;s' | sed '/a\/p;s/e rm x #/b/'
echo '[/p;s]' | sed '/[/p;s]/e rm x #/b/'
for _ in cat; do echo rm; $_ x; done
for f in cat; do :; done; for i in 1 2; do $f x; for f in rm; do :; done; done
for f in cat; do for f in rm; do :; done; $f x; done
for f in rm; do :; done; (for f in cat; do :; done); $f x
seq 20000 > l; sort -o -- --compress-program=rm -S 1k l
seq 20000 > l; for f in program program; do sort --compress-"$f"=rm -S1k l; done
for f in ca; do for ft in rm; do $f{t,} x; done; done
xargs -E {,rm}'' <<< x
xargs nice -n <<< '5 rm x'
xargs timeout -k <<< '5 5 rm x'
xargs env -u <<< 'X rm x'
xargs xargs -a x -n <<< '1 rm x'
xargs git -C <<< ". -c alias.z='!rm x' z"
mkdir d; touch d/5 d/rm d/x; cp x d; cd d; nice -n ?*
mkdir d; touch d/rm d/r d/x; cd d; env -u r* x
git grep -e 1 -e -- --open-files-in-pager='rm x'
""".strip("\n").split("\n"),
    "cat <<-E\n\t$(rm x)\n\tE",
    "at now <<E\nrm x\nE",
    "python3 <<'E'\nimport os; os.system('rm x')\nE",
    'cat <<"E"\nE\nrm x',
    "echo $(#)\nrm x)",
    "true|" * 50 + "rm x",
    "rm\tx",
    "  rm x",
    "r\\\nm x",
    "rm\\\n x",
    "echo a\nrm x",
    "echo a\r\nrm x",
    "echo 'a\n'\nrm x",
    "cat <<E\n$(rm x)\nE",
    "cat <<E\n`rm x`\nE",
    "bash <<E\nrm x\nE",
    "bash <<'E'\nrm x\nE",
    "cat <<'E'; rm x\nE",
    "echo a #\nrm x",
    "echo a\x00; rm x",
    "echo a; " * 51 + "rm x",
    "echo " + "a" * 20_000 + "; rm x",
]
"""Each runs `rm`, or nobody can say that it does not."""

NOT_ECHO = [
    *r"""
echo $((1+1))
echo $'a'
echo $"a"
echo a > f
echo a >f
echo a>f
echo a >> ~/.bashrc
echo a >| f
echo a &> f
echo a &>> f
echo a 2> f
echo a 1>&2 2>f
echo <> f
echo a |& cat
echo ~root
echo a=~/x
A=b echo a
A+=b echo a
A= echo a
echo a; }
case a in a) echo;; esac
echo() { echo; }; echo a
function echo { echo; }
(( 1 ))
echo a;; echo b
echo a; ; echo b
echo a &&
&& echo a
| echo a
; echo a
/bin/echo a
./echo a
ECHO a
echoo a
echo-x a
-echo a
builtin echo a
eval echo a
exec echo a
sudo echo a
bash -c 'echo a'
echo a; ls
echo a && ls
echo a || ls
echo a | ls
echo a | tee f
ls; echo a
echo${IFS}a
echo$IFS-a
echo%0als
echo 'a
echo "a
echo `ls`
""".strip("\n").split("\n"),
    "echo a | ",
    "",
    " ",
    "echo a\r",
    "echo a\rls",
    "echo a\x00",
    "echo\x0ba",
    "echo a\x1b[2K",
    "echo\xa0a",
    "echo\u2003a",
    "echo a\u2028ls",
    "echo a\u202els",
    "echo a\u200bls",
    "echo a\ufeff",
    "ech\u043e a",
    "echo \ud800",
    "echo a\\\n",
    "echo a \\\n; ls",
    "echo " + "a" * 10_001,
]
"""Each does something else than `echo` with literal words, or could be read so."""

READ_AS_ECHO = [
    *r"""
echo $HOME
echo ${HOME}
echo "$HOME"
echo "a $x b"
echo $$
echo $?
echo $!
echo a 2>&1
echo < f
echo <<< a
echo a &
echo a & echo b
echo *
echo *.txt
echo a?
echo [ab]
echo {a,b}
echo {1..9}
echo a{b,c}d
echo ~
echo !!
echo !x
echo "a!b"
echo \a
echo a\ b
echo "a\"b"
echo a # b
! echo a
time echo a
( echo a )
{ echo a; }
if echo a; then echo b; fi
while echo; do echo; done
for i in a; do echo a; done
"echo" a
'echo' a
e"ch"o a
env echo a
command echo a
nice echo a
timeout 1 echo a
xargs echo
echo $IFS
""".strip("\n").split("\n"),
    "echo a\necho b",
    "echo a\n",
    "\necho a",
    "echo 'a\nb'",
    "echo a; " * 51 + "echo a",
]
"""Each runs nothing but `echo`, as often as it stands there, whatever its words come to."""
