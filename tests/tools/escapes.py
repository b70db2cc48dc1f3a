"""What a command must not be able to do. Each entry is tried for real; what must hold afterwards is looked at outside.

The places in braces are filled in by the test: `home` and `outside` are directories that are none of the command's,
`victim` is a process that is none of its, `python` is an interpreter.
"""

SECRET = "hunter2-is-not-to-be-seen"

READING = {
    "a key in the home directory": "cat {home}/.ssh/id_rsa",
    "a key through a link": "ln -s {home}/.ssh/id_rsa key; cat key",
    "a key through a hard link": "ln {home}/.ssh/id_rsa key; cat key",
    "a key through a directory's descriptor": '{python} -c \'import os; d=os.open("{home}",os.O_PATH); '
    'print(os.read(os.open(".ssh/id_rsa",0,dir_fd=d),99))\'',
    "a key by the shell's own files": "HISTFILE={home}/.ssh/id_rsa; set -o history; history -r; history; "
    "mapfile -t a < {home}/.ssh/id_rsa; echo ${{a[@]}}; BASH_ENV={home}/.ssh/id_rsa bash -c :; . {home}/.ssh/id_rsa",
    "a key by the names of files": "echo {home}/.s*/* | xargs cat; cat {home}/.ssh/id_{{rsa,dsa}}; "
    "cat ~root/../{home}/.ssh/*",
    "a key in an archive": "tar cf a.tar {home}/.ssh; tar xOf a.tar; tar cf - -T <(echo {home}/.ssh/id_rsa) | tar xO; "
    "rg --pre cat . {home}/.ssh; git diff --no-index /dev/null {home}/.ssh/id_rsa; grep -rf {home}/.ssh/id_rsa .",
    "a key by another process": "coproc X {{ cat {home}/.ssh/id_rsa; }}; cat <&${{X[0]}}; "
    "cat <(cat {home}/.ssh/id_rsa); "
    "trap 'cat {home}/.ssh/id_rsa' EXIT DEBUG; find {home} -name id_rsa -exec cat {{}} +",
    "a key moved here": "mv {home}/.ssh/id_rsa key; cat key",
    "a key by its root's path": "cat /proc/self/root{home}/.ssh/id_rsa /proc/1/root{home}/.ssh/id_rsa",
    "a key with a copy of the file system": "mkdir m; unshare -Urm sh -c 'mount --bind {home} m; cat m/.ssh/id_rsa'",
    "the environment of another process": "cat /proc/{victim}/environ; cat /proc/*/environ",
    "the environment of its worker": "env; cat /proc/self/environ /proc/$PPID/environ",
    "the memory of another process": '{python} -c \'import re; p="/proc/{victim}/"; '
    r'a,b=re.search(r"(\w+)-(\w+).*stack",open(p+"maps").read()).groups(); m=open(p+"mem","rb"); '
    "m.seek(int(a,16)); print(m.read(int(b,16)-int(a,16)))'",
    "the names in the home directory": "ls -a {home} && echo " + SECRET,
    "passwords of the system": "cat /etc/shadow && echo " + SECRET,
    "a disk": "for disk in vda sda xvda nvme0n1; do head -c 1 /dev/$disk && echo " + SECRET + "; done",
    "the kernel's messages": "dmesg && echo " + SECRET,
}
"""None of these may show `SECRET`, which is in the key and in the environment of the others."""

WRITING = {
    "making a file": "echo x > {outside}/made",
    "changing a file": "echo x >> {outside}/file",
    "emptying a file": ": > {outside}/file; {python} -c 'import os; os.truncate(\"{outside}/file\",0)'",
    "emptying a file opened for reading": "{python} -c 'import os; os.open(\"{outside}/file\",os.O_RDONLY|os.O_TRUNC)'",
    "removing a file": "rm -f {outside}/file",
    "moving a file": "mv {outside}/file .",
    "putting a file in its place": "echo x > new; mv new {outside}/file",
    "making a directory": "mkdir {outside}/made",
    "a link to a directory": "ln -s {outside} link; echo x > link/made",
    "a link to a file": "ln -s {outside}/file link; echo x > link",
    "a link to what is not there yet": "ln -s {outside}/made link; echo x > link; cp /etc/hostname link; mkdir link; "
    "ln -s {outside}/made/deep far; mkdir -p far; tee link < /dev/null",
    "an archive with a link in it": "ln -s {outside} d; tar cf a.tar d; rm d; mkdir d; echo x > d/made; "
    "tar rf a.tar d/made; "
    "rm -r d; tar xPf a.tar --keep-directory-symlink; tar xf a.tar -C {outside}; tar cPf {outside}/made a.tar",
    "what runs at the end": "trap 'echo x > {outside}/made' EXIT ERR DEBUG; PROMPT_COMMAND='echo x > {outside}/made'; "
    "PS4='$(echo x > {outside}/made)'; set -x; false",
    "the shell's history": "HISTFILE={outside}/made; set -o history; echo x; history -w; history -a {outside}/made",
    "every program that writes": "dd if=/dev/zero of={outside}/made count=1; install /etc/hostname {outside}/made; "
    "mkfifo {outside}/made; mknod {outside}/made p; touch {outside}/made; truncate -s 0 {outside}/file; "
    "ln -s x {outside}/made; "
    "sed -i s/a/b/ {outside}/file; sort -o {outside}/file /dev/null; split -b 1 /etc/hostname {outside}/made",
    "awk, find, xargs and git": 'awk \'BEGIN{{print > "{outside}/made"; system("touch {outside}/made")}}\'; '
    "find . -fprint {outside}/made; echo {outside}/made | xargs touch; git init -q {outside}/made; "
    "git -C {outside} init -q; GIT_DIR={outside}/made git init -q; git clone -q . {outside}/made; "
    "env -C {outside} touch made",
    "what runs on without it": "coproc X {{ sleep 0.1; echo x > {outside}/made; }}; "
    "(echo x > {outside}/made) & disown; "
    "exec 9> >(tee {outside}/made); echo x >&9",
    "a directory above": "echo x > ../made",
    "who may read a file": "chmod 777 {outside}/file",
    "when a file was changed": "touch -d 2001-01-01 {outside}/file",
    "attributes of a file": '{python} -c \'import os; os.setxattr("{outside}/file","user.x",b"y")\'',
    "its own library before others": "LD_PRELOAD=./none.so sh -c 'echo x > {outside}/made'",
    "a script of the shell's": "BASH_ENV=./x; echo 'echo x > {outside}/made' > x; BASH_ENV=./x bash -c true",
    "a mount over it": "mount -t tmpfs none {outside}; unshare -Urm mount -t tmpfs none {outside}; "
    "echo x > {outside}/made",
    "another user": "su -c 'echo x > {outside}/made'; sudo -n sh -c 'echo x > {outside}/made'",
}
"""None of these may change anything in `outside`."""

HARMING = {
    "a signal by number": "kill -9 {victim}",
    "a signal to all": "kill -9 -1; {python} -c 'import os; os.kill(-1,9)'",
    "a signal to its group": "kill -9 -{victim}",
    "tracing it": "{python} -c 'import ctypes,time; c=ctypes.CDLL(None); c.ptrace(16,{victim},0,0); time.sleep(.1); "
    "c.ptrace(8,{victim},0,0)'",
    "its limits": "prlimit --pid {victim} --cpu=0:0; prlimit --pid {victim} --nofile=1:1",
    "a signal by way of a pipe": "{python} -c 'import fcntl,os,time; r,w=os.pipe(); fcntl.fcntl(r,10,9); "
    'fcntl.fcntl(r,8,{victim}); fcntl.fcntl(r,4,os.O_ASYNC|os.O_NONBLOCK); os.write(w,b"x"); time.sleep(.1)\'',
    "its priority": "renice -n 19 -p {victim}; renice -n 19 -u $(id -u)",
}
"""None of these may touch the victim."""

CALLING = {
    "TCP": 'import socket; s=socket.create_connection(("127.0.0.1",{tcp}),2); s.send(b"x")',
    "TCP with bash": None,
    "UDP": 'import socket; s=socket.socket(2,2); s.sendto(b"x",("127.0.0.1",{udp}))',
    "a unix socket": 'import socket; s=socket.socket(socket.AF_UNIX); s.connect("{unix}"); s.send(b"x")',
    "a unix socket in its directory": 'import socket; s=socket.socket(socket.AF_UNIX); s.connect("here")',
    "an abstract socket": 'import socket; s=socket.socket(socket.AF_UNIX); s.connect("\\0{abstract}")',
    "a pair connected anew": 'import socket; a,b=socket.socketpair(1,2); a.sendto(b"x","{datagrams}")',
    "the kernel's ring": "import ctypes; c=ctypes.CDLL(None,use_errno=True); b=ctypes.create_string_buffer(120); "
    "raise SystemExit(0 if c.syscall(425,1,b)>=0 else 1)",
    "a virtual machine's socket": "import socket; socket.socket(40,1)",
}
"""None of these programs may succeed or be heard by anybody."""

REPOSITORY = {
    "a new hook": "printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "a hook moved there": "echo x > made; mv made .git/hooks/post-checkout; ln made .git/hooks/pre-push",
    "a hook by its sample": "mv .git/hooks/a.sample .git/hooks/pre-commit; cp .git/hooks/a.sample .git/hooks/pre-push",
    "a hook in the sample": "echo x >> .git/hooks/a.sample",
    "a setting": "git config core.fsmonitor ./evil; echo '[core]' >> .git/config",
    "a setting in place of another": "echo '[core]' > .git/new; mv -f .git/new .git/config; cp .git/HEAD .git/config",
    "a setting through a link": "ln -s .git/config link; echo x >> link; ln .git/config hard; echo x >> hard",
    "settings of a worktree": "git config --worktree core.fsmonitor ./evil; echo '[core]' > .git/config.worktree",
    "another place for hooks": "git config core.hooksPath hooks; git -c x=y config alias.st '!evil'",
    "another repository in its place": "mv .git .away; cp -r .away .git; echo x > .git/hooks/pre-commit",
    "its directory removed": "rm -rf .git/hooks; rm -rf .git/config; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
    "exchanged with another": "cp -r .git evil; echo x >> evil/config; {python} -c 'import ctypes; "
    'ctypes.CDLL(None).renameat2(-100,b"evil",-100,b".git",2)\'',
    "a file exchanged with another": "echo x > evil; {python} -c 'import ctypes; "
    'ctypes.CDLL(None).renameat2(-100,b"evil",-100,b".git/config",2)\'',
    "a directory for all of it": "mkdir -p evil/hooks; cp .git/config evil; echo x > evil/hooks/pre-commit; "
    "echo ../evil > .git/commondir",
    "emptied": ": > .git/config; {python} -c 'import os; os.truncate(\".git/config\",0)'",
    "unmounted": "umount .git/config; umount -l .git/hooks; unshare -Urm umount .git/config; "
    "mount -o remount,rw .git/config; echo x >> .git/config",
    "its mode": "chmod 777 .git/config; chmod 777 .git/hooks/a.sample; setfattr -n user.x -v y .git/config",
    "in a repository below": "echo x >> below/.git/config; echo x > below/.git/hooks/pre-commit; mv below/.git x",
    "another repository below": "mv below x; cp -r x below; echo x >> below/.git/config; rm -rf below/.git",
    "another module": "mv .git/modules .git/m; mkdir -p .git/modules; cp -r .git/m/part .git/modules/part; "
    "echo x >> .git/modules/part/config; mv .git/modules/part .git/modules/other; mv part away; mkdir part; "
    "echo 'gitdir: ../evil' > part/.git",
    "in a module": "echo x >> .git/modules/part/config; echo x > .git/modules/part/hooks/pre-commit",
    "where a worktree belongs": "echo x > .git/worktrees/one/commondir; rm -rf .git/worktrees",
    "where a module belongs": "rm -f part/.git; echo 'gitdir: ../evil' > part/.git",
    "hooks that its settings name": "echo x >> .githooks/pre-commit; echo x > .githooks/post-commit; mv .githooks x; "
    "rm -rf .githooks; mkdir .githooks; echo x > .githooks/pre-push",
    "hooks that its settings name and that are not there": "mkdir -p below/made/hooks; "
    "echo x > below/made/hooks/pre-commit; chmod +x below/made/hooks/pre-commit",
    "those by a link": "mkdir evil; mkdir evil/hooks; echo x > evil/hooks/pre-commit; ln -s ../evil below/made",
    "settings that its own include": "echo '[core] fsmonitor = ./evil' >> shared.cfg; rm -f shared.cfg; "
    "mv shared.cfg x; echo '[core] hooksPath = evil' > shared.cfg",
    "settings that they would include": "echo '[core] hooksPath = evil' > later.cfg; ln -s shared.cfg later.cfg",
    "a program that its settings name": "echo evil >> tools/clean.sh; rm tools/clean.sh; echo evil > tools/clean.sh; "
    "mv tools t; mkdir tools; echo evil > tools/clean.sh",
    "every setting that runs something": "for name in core.fsmonitor core.sshCommand core.pager core.editor "
    "filter.x.clean filter.x.process diff.external diff.x.textconv alias.st merge.x.driver credential.helper "
    "gpg.program core.hooksPath include.path init.templateDir; do git config $name ./evil; "
    "git -C below config $name ./evil; git config --worktree $name ./evil; git -C part config $name ./evil; "
    "GIT_CONFIG=.git/config git config $name ./evil; git config -f .git/config --add $name ./evil; done",
    "another editor of settings": "git config --edit; git remote add x 'ext::sh -c evil'; git submodule init; "
    "git -c core.editor='sh -c \"echo x >> $1\" -' config -e; git sparse-checkout set x; git worktree add ../w; "
    "git lfs install --local; git init --template=$PWD/evil .",
    "a repository apart": "echo x >> apart.git/config; echo x > apart.git/hooks/pre-commit; mv apart.git y; "
    "cp -r y apart.git; echo x > apart.git/hooks/pre-commit; rm -f apart/.git; echo 'gitdir: ../y' > apart/.git",
    "a bare repository": "git -C bare.git config core.fsmonitor ./evil; echo x > bare.git/hooks/post-update; "
    "mv bare.git z; cp -r z bare.git; echo x >> bare.git/config",
    "the project's policy": "echo > .loom/policy.yaml; rm -rf .loom; mv .loom away; mv .loom/policy.yaml .loom/x",
    "the policy in another directory": "mkdir new; echo x > new/policy.yaml; rm -rf .loom; mv -T new .loom",
    "by the way of a process": "cd .git/hooks; echo x > ../config; echo x > a.sample; cd /proc/self/cwd; echo x > new",
}
"""None of these may change what git runs by itself at a user's next commit, or what a policy says."""

SECRETS = {
    "plain": "cat .env",
    "below": "cat settings/.env.local settings/deploy.pem keys/id_rsa keys/.ssh/other .npmrc",
    "all": "grep -r . . ; tar cf - . ; cat .e*",
    "moved": "mv .env plain; cat plain; mv settings s; cat s/.env.local s/deploy.pem",
    "linked": "ln .env hard; cat hard; ln -s .env soft; cat soft; ln -s $PWD/settings/deploy.pem soft2; cat soft2",
    "copied": "cp .env copy; cp -r . ../copy; cp -r settings copies; cat copy copies/*",
    "exchanged": "echo > plain; {python} -c 'import ctypes; "
    'ctypes.CDLL(None).renameat2(-100,b"plain",-100,b".env",2)\'; cat plain',
    "by mode": "chmod 644 .env; cat .env; chmod -R 777 .; cat .env settings/*",
    "by descriptor": '{python} -c \'import os; d=os.open(".",os.O_PATH); '
    'print(os.read(os.open(".env",0,dir_fd=d),99))\'',
    "by an open of its name": '{python} -c \'import os; f=os.open(".env",os.O_PATH); '
    'print(open("/proc/self/fd/%d"%f).read())\'',
    "as a script": ". ./.env; echo $TOKEN; bash .env; source settings/.env.local; echo $TOKEN",
    "unmounted": "umount .env; cat .env; unshare -Urm sh -c 'umount .env; cat .env'; unshare -Urm cat .env",
    "with git": "git add -f .env; git show :.env; git diff --no-index /dev/null .env; git hash-object -w .env",
}
"""None of these may show `SECRET`, which is in files of keys and settings in the working directory."""
