#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What a site puts around jobs: Slurm's prolog and epilog with the environment that Slurm gives them, the examples of jobs as they stand, the
# module file, the recipe for Spack.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need_root
need setpriv flock tclsh
export PATH=$WORK/bin:$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$CKPTFS_BUILD/mpi-agent:$PATH
unset "${!SLURM_@}" "${!PBS_@}" "${!FLUX_@}" "${!OMPI_@}" CKPTFS_STORE CKPTFS_MOUNT
jobs=$HERE/../../tools/jobs
mkdir "$WORK/bin" "$WORK/local" "$WORK/scratch" "$WORK/tmp"
chmod 777 "$WORK/scratch"

# --- Slurm ---
slurm_scripts "$WORK/slurm"
for name in prolog epilog task-prolog; do
	! grep -o '@[a-z]*@' "$WORK/slurm/$name" || fail "something is not filled in"
	if command -v shellcheck >/dev/null; then shellcheck "$WORK/slurm/$name" || fail "shellcheck"; fi
done
point=$WORK/run/nobody
mkdir -p "$WORK/etc/ckptfs"
cat >"$WORK/etc/ckptfs/slurm.conf" <<SH
stores=$WORK/local
points=$WORK/run
SH
slurm() { # SCRIPT JOB [COMMENT]: without a PATH, as Slurm does it
	env -i SLURM_JOB_ID="$2" SLURM_JOB_USER=nobody SLURM_JOB_UID=65534 ${3:+SLURM_JOB_COMMENT="$3"} "$WORK/slurm/$1"
}
is_mounted() { grep -qF " $point fuse.ckptfs" /proc/mounts; }
exits 0 slurm prolog 1
exits 0 slurm prolog 1 "not a ckptfsx"
! is_mounted || fail "a job that does not ask for it gets a mount"
exits 0 slurm prolog 1 "gpu,ckptfs"
is_mounted || fail_showing "a job that asks for it gets none"
exits 0 slurm prolog 2 ckptfs # a second job of the same user
exits 0 as_nobody env -i SLURM_JOB_ID=2 "$WORK/slurm/task-prolog"
tells "^export CKPTFS_MOUNT=$point$"
exits 0 as_nobody env -i SLURM_JOB_ID=3 SLURM_JOB_COMMENT=ckptfs "$WORK/slurm/task-prolog"
tells "^print ckptfs: not mounted"
[ "$(stat -c '%U %a' "$point")" = "nobody 700" ] || fail "the user's mount is $(stat -c '%U %a' "$point")"
as_nobody sh -c 'mkdir "$0/step.1" && echo content >"$0/step.1/file" && ckptfs-seal -q "$0/step.1"' "$point" || fail "the user cannot use it"
exits 0 slurm epilog 3 # had none
exits 0 slurm epilog 1
is_mounted || fail "unmounted under another job"
echo "flush_to=$WORK/scratch/%u.%j" >>"$WORK/etc/ckptfs/slurm.conf"
exits 0 slurm epilog 2
! is_mounted || fail_showing "still mounted after the last job"
[ "$(cat "$WORK/scratch/nobody.2/step.1/file")" = content ] || fail_showing "not copied out"
[ "$(stat -c %U "$WORK/scratch/nobody.2/step.1")" = nobody ] || fail "copied out by root"
[ -z "$(find "$WORK/run" -name '*.jobs')" ] || fail "jobs are still noted"
exits 0 slurm epilog 2 # again

# A daemon that has died is replaced, one that is in use is detached.
exits 0 slurm prolog 4 ckptfs
kill -KILL "$(ckptfs-stat --json "$point" | json pid)"
exits 0 slurm prolog 5 ckptfs
says "has died; mounting again"
stat -f "$point" >/dev/null || fail "the dead mount is still there"
exits 0 slurm epilog 4
(cd "$point" && exec sleep 1000) &
until [ "$(readlink "/proc/$!/cwd")" = "$point" ]; do sleep 0.05; done
exits 0 slurm epilog 5
says "detaching"
! is_mounted || fail "still mounted"
kill $!
{ wait $! || true; } 2>/dev/null

# A node that cannot mount. Another user's mount, with a name that differs where this one has a dot, is not taken for it.
exits 0 slurm prolog 8 ckptfs
echo "options=no_such" >>"$WORK/etc/ckptfs/slurm.conf"
exits 0 env -i SLURM_JOB_ID=9 SLURM_JOB_USER=nobod. SLURM_JOB_COMMENT=ckptfs "$WORK/slurm/prolog"
says "job 9, user nobod.: cannot mount"
exits 0 slurm epilog 8
! is_mounted || fail "still mounted"
exits 0 slurm prolog 6 ckptfs
says "job 6, user nobody: cannot mount"
echo "required=yes" >>"$WORK/etc/ckptfs/slurm.conf"
exits 1 slurm prolog 6 ckptfs
exits 1 env -i SLURM_JOB_ID=6 SLURM_JOB_USER=../x "$WORK/slurm/prolog"
says "is not a user name"
exits 1 env -i SLURM_JOB_ID=6/../7 SLURM_JOB_USER=nobody "$WORK/slurm/epilog"
says "is not a number"
for name in $'x\e[2J' $'x\nforged' -x; do
	exits 1 env -i SLURM_JOB_ID=6 SLURM_JOB_USER="$name" "$WORK/slurm/prolog"
	[ "$(cat "$WORK/said")" = "ckptfs-prolog: job 6, user ?: SLURM_JOB_USER is not a user name" ] ||
		fail_showing "${name@Q} is printed"
	exits 1 env -i SLURM_JOB_ID="$name" SLURM_JOB_USER=nobody "$WORK/slurm/epilog"
	[ "$(cat "$WORK/said")" = "ckptfs-epilog: job ?, user nobody: SLURM_JOB_ID is not a number" ] ||
		fail_showing "${name@Q} is printed"
done

# --- the examples, as they stand; one node, and other names for its disks ---
cat >"$WORK/bin/srun" <<'SH'
#!/bin/bash
[ "$1" != run ] || shift # of flux
case $1 in job) echo 1000 ;; getattr) echo 1 ;; *)
	while [[ $1 == -* ]]; do shift; done
	exec "$@" ;;
esac
SH
chmod +x "$WORK/bin/srun"
cp "$WORK/bin/srun" "$WORK/bin/flux"
printf '#!/bin/sh\n[ "$*" != "--noheader --jobs=11 --format=%%L" ] || echo 1-00:00:00\n' >"$WORK/bin/squeue" # as Slurm 22.05, which sets no SLURM_JOB_END_TIME
chmod +x "$WORK/bin/squeue"
cp "$WORK/bin/srun" "$WORK/bin/mpirun"
cat >"$WORK/solver" <<'SH'
#!/bin/sh
mkdir "$2/step" && echo "state of $2" >"$2/step/state" && ckptfs-seal -q "$2/step" && exit 9
SH
chmod +x "$WORK/solver"
head -c 32 /dev/urandom >"$WORK/local/solver.key"
mkdir "$WORK/scratch/solver"
export SLURM_JOB_NUM_NODES=1 PBS_O_WORKDIR=$WORK
cd "$WORK"
for example in job.slurm:SLURM_JOB_ID=11 job.flux:FLUX_ENCLOSING_ID=12 job.pbs:PBS_JOBID=13; do
	sed -E "s#([ =])/(tmp|local|scratch)/#\\1$WORK/\\2/#g" "$jobs/examples/${example%%:*}" >"$WORK/script"
	exits 9 env "${example#*:}" bash "$WORK/script"
	[ "$(cat "$WORK/scratch/solver/$(uname -n)/step/state")" = "state of $WORK/tmp/ckpt.${example##*=}" ] || fail_showing "$example"
	[ -z "$(ls "$WORK/tmp")" ] || fail "$example leaves a mountpoint"
	rm -r "$WORK/local/solver.store" "$WORK/scratch/solver/$(uname -n)"
done
if command -v shellcheck >/dev/null; then shellcheck -e SC2016 "$jobs"/examples/job.* || fail "shellcheck"; fi

# --- the module file ---
cat >"$WORK/module.tcl" <<'TCL'
proc module-whatis {text} { puts "whatis $text" }
proc conflict {name} { puts "conflict $name" }
proc prepend-path {name value} { puts "$name $value" }
proc append-path {name value} { puts "$name at the end [list $value]" }
source [lindex $argv 0]
TCL
exits 0 tclsh "$WORK/module.tcl" "$CKPTFS_BUILD/tools/jobs/ckptfs"
for line in "conflict ckptfs" "PATH /.*/s*bin" "MANPATH /.*/man" "MANPATH at the end {}" "PKG_CONFIG_PATH /.*/pkgconfig" "PYTHONPATH /"; do tells "^$line"; done
says_not '@'
for init in /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash; do # Environment Modules, Lmod
	[ -r "$init" ] || continue
	mkdir -p "$WORK/modules"
	cp "$CKPTFS_BUILD/tools/jobs/ckptfs" "$WORK/modules"
	exits 0 env -u MANPATH bash -c '. "$0"; module use "$1"; module load ckptfs; echo "PATH $PATH"; echo "MANPATH $MANPATH"; module unload ckptfs; echo "then ${MANPATH-nothing}"' "$init" "$WORK/modules"
	tells "^PATH /.*/sbin:/.*/bin:" && tells "^MANPATH /.*/man::*$" && tells "^then nothing$"
done

# --- the recipe: what Spack would do with it, as far as that can be seen without Spack ---
"$PYTHON" - "$jobs/package.py" "$HERE/../../meson_options.txt" <<'PY' || fail "the recipe for Spack"
import ast, re, sys, types
text = open(sys.argv[1]).read()
ast.parse(text)
calls = {}
stub = types.ModuleType("spack.package")
for name in ("version", "variant", "depends_on", "conflicts", "license"):
    def directive(first, *rest, _name=name, **named):
        calls.setdefault(_name, {}).setdefault(first, []).append(named)
    setattr(stub, name, directive)
class MesonPackage:
    pass
stub.MesonPackage = MesonPackage
sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), stub
names = {}
exec(compile(text, sys.argv[1], "exec"), names)
package = names["Ckptfs"]()
assert package.__doc__
assert set(calls["variant"]) == {"mpi", "cuda", "hdf5", "metrics", "s3", "python"}
for when in (d.get("when") for ds in calls["depends_on"].values() for d in ds):
    assert when is None or when.lstrip("+~") in calls["variant"], when
options = set(re.findall(r"option\('(\w+)'", open(sys.argv[2]).read()))
class Spec:
    def satisfies(self, what):
        assert what[1:] in calls["variant"]
        return what == "+cuda"
package.spec = Spec()
arguments = package.meson_args()
assert {a[2:].split("=")[0] for a in arguments} <= options, arguments
assert arguments[:4] == ["-Dmpi=disabled", "-Dgpu=enabled", "-Dhdf5=disabled", "-Dmetrics=disabled"], arguments
PY
