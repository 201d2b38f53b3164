#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# umount.ckptfs ends the daemon although another mount namespace has the mount, loses nothing that was accepted there, says
# after two seconds what it waits for, and waits no longer than --timeout; mount.ckptfs of a store in use likewise. umount(8)
# succeeds as soon as something is mounted.
. "$(dirname "$0")/lib.sh"
need_root
need_mount
need unshare
export PATH=$CKPTFS_BUILD/tools:$CKPTFS_BUILD/fs:$PATH

# pin COMMAND...: run it in a mount namespace of its own, which keeps the mount; it touches $WORK/pinned when it is there
pin() {
	rm -f "$WORK/pinned" "$WORK/release"
	unshare -m "$@" &
	pinner=$!
	await test -e "$WORK/pinned"
}
pin_idle() { pin bash -c 'touch "$WORK/pinned"; until [ -e "$WORK/release" ]; do sleep 0.05; done'; }
release() {
	touch "$WORK/release"
	wait "$pinner" || fail "the process in the other namespace: exit code $?"
}
daemon_ends() {
	wait "$DAEMON" || fail "the daemon ended with exit code $?"
	DAEMON=
}

# The daemon does not keep its own mount busy while it starts.
mkdir "$WORK/brief"
for _ in $(seq 40); do
	mount.ckptfs --foreground "$WORK/brief.store" "$WORK/brief" >"$WORK/said" 2>&1 &
	brief=$!
	until grep -q " $WORK/brief " /proc/self/mountinfo; do
		kill -0 "$brief" || fail "not mounted: $(cat "$WORK/said")"
	done
	umount "$WORK/brief" || fail "a mount that was just made is busy"
	{ wait "$brief" || true; } 2>/dev/null
done

# A mount that was used and unmounted before the thread that answered INIT went on has served, and ends well.
cc -shared -fPIC -x c -o "$WORK/late.so" - <<'C' || fail "late.so is not built"
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
ssize_t writev(int fd, const struct iovec *v, int n)
{
	static atomic_int nr_replies;
	ssize_t r = syscall(SYS_writev, fd, v, n);

	if (nr_replies++ == 0)
		sleep(3);
	return r;
}
C
ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$WORK/late.so \
	mount.ckptfs --foreground "$WORK/brief.store" "$WORK/brief" >"$WORK/said" 2>&1 &
brief=$!
until grep -q " $WORK/brief " /proc/self/mountinfo; do
	kill -0 "$brief" || fail "not mounted: $(cat "$WORK/said")"
done
echo used >"$WORK/brief/file"
umount "$WORK/brief"
wait "$brief" || fail "the daemon of a mount that was used: exit code $?: $(cat "$WORK/said")"

# A store that is locked for ever: the mount fails after 30 seconds, meanwhile the rest of this test runs.
mkdir "$WORK/busy" "$WORK/locked"
echo x >"$WORK/locked/superblock"
flock "$WORK/locked/superblock" sleep 1000 &
locker=$!
await sh -c "! flock -n '$WORK/locked/superblock' true"
mount.ckptfs "$WORK/locked" "$WORK/busy" >"$WORK/gave-up" 2>&1 &
waiting=$!

# Daemons that hang: ckptfs-run and mount.ckptfs fail after a minute and less, meanwhile likewise.
cat >"$WORK/stops" <<'SH'
echo kept >"$CKPTFS_MOUNT/kept"
ckptfs-stat --json "$CKPTFS_MOUNT" | sed 's/.*"pid":\([0-9]*\).*/\1/' >"$WORK/hung.pid"
kill -STOP "$(cat "$WORK/hung.pid")"
until grep -q "^State:.T" "/proc/$(cat "$WORK/hung.pid")/status"; do sleep 0.05; done
SH
ckptfs-run --store "$WORK/hung.store" --mount "$WORK/hung mount" --flush-to "$WORK/flushed" bash "$WORK/stops" >"$WORK/hung" 2>&1 &
hung=$!
mkdir "$WORK/stopped"
mount.ckptfs "$WORK/stopped.store" "$WORK/stopped"
stopped=$(ckptfs-stat --json "$WORK/stopped" | json pid)
stop_process "$stopped"
mount.ckptfs "$WORK/another" "$WORK/stopped" >"$WORK/stopped.mount" 2>&1 &
over_stopped=$!
ckptfs-run --store "$WORK/another" --mount "$WORK/stopped" true >"$WORK/stopped.run" 2>&1 &
run_stopped=$!
ckptfs-run --shared --mount "$WORK/stopped" --flush-to "$WORK/flushed" true >"$WORK/stopped.shared" 2>&1 &
share_stopped=$!

mount.ckptfs "$WORK/stopped.store" "$WORK/stopped" -o remount,ro >"$WORK/stopped.remount" 2>&1 &
remount_stopped=$!

# And one that hangs while it is copied from, a MiB each second.
cat >"$WORK/seals" <<'SH'
mkdir "$CKPTFS_MOUNT/step"
head -c 64M /dev/urandom >"$CKPTFS_MOUNT/step/data"
ckptfs-seal -q "$CKPTFS_MOUNT/step"
ckptfs-stat --json "$CKPTFS_MOUNT" | sed 's/.*"pid":\([0-9]*\).*/\1/' >"$WORK/copied.pid"
SH
ckptfs-run --store "$WORK/copied.store" --mount "$WORK/copied mount" -o read_rate=1M --flush-to "$WORK/copied.to" bash "$WORK/seals" >"$WORK/copied" 2>&1 &
copied=$!
await sh -c "[ -s '$WORK/copied.to/'.step.ckptfs-*/data ]"
stop_process "$(cat "$WORK/copied.pid")"

# --- pinned elsewhere, with files open and mapped there ---
cat >"$WORK/writer.py" <<'PY'
import mmap, os, sys, time
mnt, work = sys.argv[1:]
open_file = open(mnt + "/open", "wb", buffering=0)
open_file.write(b"accepted" * 1000)
mapped = os.open(mnt + "/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(mapped, 8192)
page = mmap.mmap(mapped, 8192)
page[:6] = b"mapped"
open(work + "/pinned", "w").close()
while not os.path.exists(work + "/release"):
    time.sleep(0.05)
for use in (lambda: open_file.write(b"more"), lambda: os.listdir(mnt), lambda: open(mnt + "/new", "w")):
    try:
        use()
    except OSError as e:
        assert e.errno in (107, 103), e  # ENOTCONN, ECONNABORTED
    else:
        sys.exit("a request was answered after the daemon had ended")
os._exit(0)  # the mapped page is gone with the daemon
PY
fs_mount
pin "$PYTHON" "$WORK/writer.py" "$MNT" "$WORK"
exits 0 umount.ckptfs --timeout 100s "$MNT"
running "$pinner" || fail "the process in the other namespace has ended"
daemon_ends
grep -q "unmounted in this mount namespace; closing it" "$WORK/daemon.log" || fail "the daemon did not say why it ended"
release
fs_sound "after an unmount with the mount pinned"
fs_mount
[ "$(md5sum <"$MNT/open")" = "$(yes accepted | head -n 1000 | tr -d "\n" | md5sum)" ] || fail "accepted bytes were lost"
[ "$(head -c 6 "$MNT/mapped")" = mapped ] || fail "a mapped page was lost"

# A new mount on the same place survives the end of the old daemon.
pin_idle
umount -i "$MNT" # past the helper: the daemon serves the other namespace
old=$DAEMON
running "$old" || fail "the daemon has left another namespace alone without being asked"
mount -t tmpfs tmpfs "$MNT"
kill -TERM "$old"
daemon_ends
mountpoint -q "$MNT" || fail "the daemon has unmounted what another program had mounted there"
umount "$MNT"
release

# Nor is one unmounted that was mounted over it.
fs_mount
mount -t tmpfs tmpfs "$MNT"
kill -TERM "$DAEMON"
daemon_ends
[ "$(stat -f -c %T "$MNT")" = tmpfs ] || fail "the daemon has unmounted what was mounted over it"
umount "$MNT"
exits 1 stat "$MNT"
says "not connected"
umount "$MNT"

# --- busy in this namespace: refused, and the daemon serves what was lazily detached by other means ---
fs_mount
exec 7<"$MNT/open"
exits 32 umount.ckptfs "$MNT"
says "in use"
umount -i -l "$MNT"
[ "$(wc -c <&7)" = 8000 ] || fail "a detached mount ends though it is in use"
exec 7<&-
daemon_ends

# --- one of several mounts: the daemon goes on for the others ---
mkdir "$WORK/bind"
fs_mount
mount --bind "$MNT" "$WORK/bind"
exits 0 umount.ckptfs "$MNT"
says "still mounted on $WORK/bind"
[ -e "$WORK/bind/open" ] || fail "the other mount does not answer"
mount --bind "$WORK/bind" "$MNT"
umount "$WORK/bind"
exits 0 unshare -m "$CKPTFS_BUILD/tools/umount.ckptfs" "$MNT"
says "belongs to another mount namespace and keeps running"
[ -e "$MNT/open" ] || fail "unmounted in another namespace, it does not answer here"
umount -i -l "$MNT" # was not asked to end here
daemon_ends

# --- a daemon that does not end: told after two seconds, left after the timeout ---
exits 1 umount.ckptfs --timeout soon "$MNT"
says "not a time"
fs_mount
stop_process "$DAEMON"
exits 32 umount.ckptfs --timeout 3s "$MNT"
says "$MNT: waiting for the daemon to make everything durable"
says "not unmounted: cannot make everything durable"
mounted || fail "unmounted though it could not be synced"
kill -CONT "$DAEMON"
await umount.ckptfs "$MNT"
daemon_ends
fs_mount
pin_idle
umount -i "$MNT"
: >"$WORK/said"
mount.ckptfs "$STORE" "$MNT" 2>"$WORK/said" &
second=$!
await grep -q "store $STORE: waiting up to 30 s for it to be closed (locked by $DAEMON (mount.ckptfs); mounted for .* on $MNT)" "$WORK/said"
release
wait "$second" || fail_showing "a mount that has waited fails"
daemon_ends
[ -e "$MNT/open" ] || fail "a mount that has waited does not answer"
exits 0 umount.ckptfs "$MNT"
# --- ckptfs-run ends while another namespace has its mount ---
cat >"$WORK/job" <<'SH'
unshare -m setsid bash -c 'touch "$WORK/pinned"; until [ -e "$WORK/release" ]; do sleep 0.05; done' >/dev/null 2>&1 &
until [ -e "$WORK/pinned" ]; do sleep 0.05; done
echo kept >"$CKPTFS_MOUNT/kept"
SH
rm -f "$WORK/pinned" "$WORK/release"
exits 0 ckptfs-run --store "$STORE" --mount "$WORK/job mount" bash "$WORK/job"
await sh -c '! pgrep -f "mount.ckptfs $0 "' "$STORE" >"$WORK/out"
exits 0 ckptfs-run --store "$STORE" --mount "$WORK/job mount" grep -qx kept "$WORK/job mount/kept"
touch "$WORK/release"

# --- a plain user's mount, pinned: unmounted by the user, and by root, which may not look into it ---
if users_can_mount && mknod -m 666 "$WORK/fuse" c 10 229; then
	mkdir "$WORK/home" "$WORK/bin"
	chown 65534:65534 "$WORK/home"
	cp "$CKPTFS_BUILD/fs/mount.ckptfs" "$CKPTFS_BUILD/tools/umount.ckptfs" "$WORK/bin/"
	cat >"$WORK/as-user" <<-'SH'
		set -eu
		mount --bind "$WORK/fuse" /dev/fuse # for this namespace only: users may use FUSE
		cd "$WORK/home"
		PATH=$WORK/bin:$PATH
		user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
		user mkdir mnt
		for unmounts in user env; do
			user mount.ckptfs "$PWD/store" "$PWD/mnt"
			user sh -c "echo $unmounts >mnt/$unmounts"
			unshare -m sleep 1000 &
			until [ "$(readlink "/proc/$!/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.05; done
			$unmounts umount.ckptfs "$PWD/mnt"
			kill "$!"
		done
		user mount.ckptfs "$PWD/store" "$PWD/mnt"
		[ "$(user cat mnt/user mnt/env | tr '\n' ' ')" = "user env " ]
		user umount.ckptfs "$PWD/mnt"
	SH
	exits 0 unshare -m bash "$WORK/as-user"
else
	skip_part "plain users cannot mount here"
fi

# --- daemons that hang ---
has_failed() { # PID CODE FILE REGEX...: what it has said
	local code=0 what
	gone "$1" || fail "it waits for ever for a daemon that hangs: $(cat "$WORK/$3")"
	wait "$1" || code=$?
	[ "$code" = "$2" ] || fail "$3: exit code $code instead of $2: $(cat "$WORK/$3")"
	for what in "${@:4}"; do grep -q "$what" "$WORK/$3" || fail "$3: nothing was said of: $what: $(cat "$WORK/$3")"; done
}
has_failed "$over_stopped" 32 stopped.mount "waiting up to 30 s for the daemon of the mount there" \
	"$WORK/stopped.store is mounted there, and its daemon does not answer; umount.ckptfs -l"
has_failed "$run_stopped" 125 stopped.run "waiting for its daemon to answer" "its daemon does not answer" "umount.ckptfs -l .* detaches it"
has_failed "$share_stopped" 125 stopped.shared "its daemon does not answer"
has_failed "$hung" 125 hung "waiting for its daemon to answer" "its daemon does not answer" "hung mount: detached; if its daemon resumes"
! grep -q "hung.040mount" /proc/mounts || fail "ckptfs-run has left a mount whose daemon hangs"
[ ! -e "$WORK/hung mount" ] || fail "ckptfs-run has left the mountpoint of a daemon that hangs"
has_failed "$copied" 125 copied "waiting for its daemon to answer" "its daemon does not answer any more" "copied mount: detached; if its daemon resumes"
! grep -q "copied.040mount" /proc/mounts || fail "ckptfs-run has left a mount whose daemon hangs while it copies out"
[ ! -e "$WORK/copied.to/step" ] || fail "a copy that was not completed has its name"
has_failed "$remount_stopped" 32 stopped.remount "waiting up to 30 s for its daemon to answer" \
	"not remounted: the daemon of $WORK/stopped.store does not answer; kill it and mount again, or umount.ckptfs -l"
umount.ckptfs -l "$WORK/stopped"
kill -CONT "$stopped" "$(cat "$WORK/hung.pid")" "$(cat "$WORK/copied.pid")"
gone "$stopped" && gone "$(cat "$WORK/hung.pid")" && gone "$(cat "$WORK/copied.pid")" || fail "a detached daemon goes on without users"
exits 0 ckptfs-run --store "$WORK/hung.store" --mount "$WORK/hung mount" grep -qx kept "$WORK/hung mount/kept"

code=0
wait "$waiting" || code=$?
[ "$code" = 32 ] || fail "a mount of a locked store: exit code $code"
grep -q "store $WORK/locked: waiting up to 30 s for it to be closed (locked by $locker (flock))" "$WORK/gave-up" &&
	grep -q "store $WORK/locked: in use, but not mounted in this mount namespace (locked by $locker (flock))" "$WORK/gave-up" ||
	fail "not told what locks the store: $(cat "$WORK/gave-up")"
mount.ckptfs "$WORK/locked" "$WORK/busy" >/dev/null 2>&1 &
waiting=$!
await pgrep -P "$waiting" >"$WORK/out"
daemon=$(pgrep -P "$waiting")
kill -KILL "$waiting"
{ wait "$waiting" || true; } 2>/dev/null
gone "$daemon" || fail "a mount that was killed goes on waiting"
pkill -P "$locker" # sleep
{ wait "$locker" || true; } 2>/dev/null
