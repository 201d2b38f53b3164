#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Sealed checkpoints are flushed to an S3 store and read back by an empty machine. What the store refuses is named, and
# is in no program's way. Credentials are nowhere but in memory.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
tools=$CKPTFS_BUILD/tools
restore=$(program tier_restore)
"$tools/ckptfs" version | grep -q '^ *libcurl  *[0-9]' || skip "built without S3"
secret=a+secret/that/is+in-no-log token=a+token/that/is+in-no-log
export AWS_SHARED_CREDENTIALS_FILE=$WORK/none AWS_CONFIG_FILE=$WORK/none
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE
tier() { figure "tier.$1"; }
is() { [ "$(tier "$1")" = "$2" ]; } # KEY VALUE: to be awaited
all_there() { [ "$(tier waiting)" = 0 ] && [ "$(tier in_tier)" = "$1" ]; } # NUMBER
seal() { exits 0 "$tools/ckptfs-seal" "$@"; }

# The store is a child that ends with its standard input.
coproc STORE_S3 { exec "$PYTHON" "$HERE/../tier/fake_s3.py"; }
read -r port <&"${STORE_S3[0]}"
store() { # COMMAND...
	local answer
	echo "$*" >&"${STORE_S3[1]}"
	read -r answer <&"${STORE_S3[0]}"
	echo "$answer"
}
conf() { # SECRET TOKEN
	rm -f "$WORK/conf"
	(umask 077 && printf 'aws_access_key_id = key\naws_secret_access_key = %s\naws_session_token = %s\nendpoint_url = %s\n' \
		"$1" "$2" "http://127.0.0.1:$port" >"$WORK/conf")
}
step() { # PATH SEED
	local d
	for d in "$MNT/$1" "$WORK/plain/$1"; do
		mkdir -p "$d"
		noise same 1 >"$d/state"
		noise "$2" 1 >"$d/new"
		truncate -s 64K "$d/state" "$d/new"
	done
}
back() { # PATH...: an empty machine gets these, and nothing else
	local path
	rm -rf "$WORK/back"
	mkdir "$WORK/back"
	env AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY="$secret" AWS_SESSION_TOKEN="$token" \
		AWS_ENDPOINT_URL="http://127.0.0.1:$port" "$restore" s3://bucket/job "$WORK/back" || fail "the tier cannot be read"
	for path in "$WORK"/back/*/*.path; do
		diff -r "${path%.path}" "$WORK/plain/$(cat "$path")" || fail "$(cat "$path"): other bytes in the tier"
	done
	[ "$(sort "$WORK"/back/*/*.path)" = "$(printf '%s\n' "$@" | sort)" ] || fail "there are $(cat "$WORK"/back/*/*.path)"
}
# Command lines, environments, logs, figures, the local store: none has a secret.
look_for_secrets() {
	local f
	"$tools/ckptfs-stat" "$MNT" >"$WORK/figures"
	"$tools/ckptfs-stat" --json "$MNT" >>"$WORK/figures"
	"$tools/ckptfs-stat" --prometheus "$MNT" >>"$WORK/figures"
	"$tools/ckptfs-stat" --sealed "$MNT" >>"$WORK/figures"
	cat /proc/mounts >>"$WORK/figures"
	for f in "$WORK/figures" "$WORK/daemon.log" /proc/[0-9]*/cmdline "/proc/$DAEMON/environ"; do
		! grep -qaF -e "$secret" -e "$token" -e 'Signature=' "$f" 2>/dev/null || fail "$f has a secret"
	done
	! grep -rqaF -e "$secret" -e "$token" "$STORE" || fail "the local store has a secret"
}

# --- flushed, and read back ---
store credentials key "$secret" "$token" >/dev/null
conf "$secret" "$token"
fs_mount "tier=s3://bucket/job,tier_config=$WORK/conf"
step run/1 1
seal --wait=tier "$MNT/run/1"
tells "1: in the tier s3://bucket/job"
step run/2 2
store rule '*' job 0 2 status 503 SlowDown >/dev/null
store rule PUT packs 0 1 reset-after >/dev/null
store rule PUT sealed 0 1 status-after 500 InternalError >/dev/null
seal --wait=tier "$MNT/run/2"
[ "$(store left)" = 0 ] || fail "the faults have not been met"
back run/1 run/2
look_for_secrets

# --- what is refused is named; a seal does not wait for it ---
store clear >/dev/null
store rule '*' job 0 999 status 404 NoSuchBucket >/dev/null
step run/3 3
seal "$MNT/run/3"
await grep -q 'cannot write: the bucket does not exist' "$WORK/daemon.log"
store clear >/dev/null
await all_there 3
store credentials key "$secret" another >/dev/null
step run/4 4
seal "$MNT/run/4"
await grep -q 'the credentials have expired: renew them' "$WORK/daemon.log"
token=a+newer/token/that/is+in-no-log
store credentials key "$secret" "$token" >/dev/null
conf "$secret" "$token"
await all_there 4
back run/1 run/2 run/3 run/4
look_for_secrets
fs_umount

# --- the same from the environment, which is cleared ---
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=$secret AWS_SESSION_TOKEN=$token AWS_ENDPOINT_URL=http://127.0.0.1:$port
fs_mount "tier=s3://bucket/job"
step run/5 5
seal --wait=tier "$MNT/run/5"
look_for_secrets
fs_umount
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
back run/1 run/2 run/3 run/4 run/5

# --- a machine that has nothing mounts the tier by itself ---
"$CKPTFS_BUILD/fs/mount.ckptfs" s3://bucket/job "$MNT" -o "tier_config=$WORK/conf,log=$WORK/tier.log"
for n in 1 2 3 4 5; do
	diff -r "$MNT/run/$n" "$WORK/plain/run/$n" || fail "run/$n: other bytes in the mounted tier"
done
exits 0 "$tools/ckptfs-stat" --verify "$MNT/run/5"
for f in "$WORK/tier.log" /proc/mounts /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
	! grep -qaF -e "$secret" -e "$token" -e 'Signature=' "$f" 2>/dev/null || fail "$f has a secret"
done
umount "$MNT"

# --- checkpoints are removed from it, while answers are lost; two collections free their space ---
store rule PUT gc/ 0 1 reset-after >/dev/null
store rule PUT sealed 0 1 status-after 500 InternalError >/dev/null
store rule DELETE sealed 0 1 status 503 SlowDown >/dev/null
exits 0 "$tools/ckptfs-gc" --tier --tier-config "$WORK/conf" --keep-last 2 --delete s3://bucket/job
tells "removed run/3"
tells "keep    run/4"
store rule DELETE packs 0 1 reset-after >/dev/null
exits 0 "$tools/ckptfs-gc" --tier --tier-config "$WORK/conf" --delete --json s3://bucket/job
[ "$(json removed kept pending_packs freed_packs <"$WORK/out" | xargs)" = "0 2 0 2" ] || fail_showing "other figures"
[ "$(store left)" = 0 ] || fail "the faults have not been met"
! grep -qF -e "$secret" -e "$token" "$WORK/out" "$WORK/said" || fail "a message has a secret"
back run/4 run/5

exits 1 "$CKPTFS_BUILD/fs/mount.ckptfs" s3://bucket/job "$MNT"
says "no credentials for S3: set AWS_ACCESS_KEY_ID"

# --- the tier is read without a mount ---
tool() { "$tools/ckptfs-tier" "$1" --tier-config "$WORK/conf" "${@:2}"; } # ACTION ARGUMENT...
exits 0 tool list s3://bucket/job
tells '^\* run/5 '
! grep -q 'run/3' "$WORK/out" || fail "a checkpoint that was removed is listed"
store rule GET packs 0 1 reset-after >/dev/null
exits 0 tool verify s3://bucket/job
[ "$(grep -c ': valid: ' "$WORK/out")" = 2 ] || fail_showing "not two are valid"
exits 0 tool get s3://bucket/job run/4 "$WORK/got"
diff -r "$WORK/got" "$WORK/plain/run/4" || fail "run/4: other bytes"
exits 0 tool probe s3://bucket/job
store rule PUT probe 0 999 unconditional >/dev/null
exits 3 tool probe --json s3://bucket/job
says 'its conditional puts are not atomic'
[ "$(json usable <"$WORK/out")" = false ] || fail_showing "not as it must be"
store clear >/dev/null
store rule '*' job 0 999 status 403 AccessDenied >/dev/null
exits 2 tool list s3://bucket/job
store clear >/dev/null
! grep -qF -e "$secret" -e "$token" "$WORK/out" "$WORK/said" || fail "a message has a secret"
exits 2 "$tools/ckptfs-tier" list s3://bucket/job
says "no credentials for S3: set AWS_ACCESS_KEY_ID"

# --- mistakes end the mount ---
mistake() { # OPTIONS TEXT
	if "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o "$1" >"$WORK/mistake" 2>&1; then fail "$1 is accepted"; fi
	grep -qF "$2" "$WORK/mistake" || fail "$1: says $(cat "$WORK/mistake")"
}
mistake tier=s3://bucket/job "no credentials for S3: set AWS_ACCESS_KEY_ID"
mistake "tier=s3://bucket/job,tier_config=$WORK/none" "none: cannot open: No such file"
mistake "tier=s3://bucket/job,tier_config=conf" "must be a path that begins with a slash"
chmod 644 "$WORK/conf"
mistake "tier=s3://bucket/job,tier_config=$WORK/conf" "chmod 600 $WORK/conf"
chmod 600 "$WORK/conf"
echo "secret = $secret" >>"$WORK/conf"
mistake "tier=s3://bucket/job,tier_config=$WORK/conf" "conf: line 5: unknown setting"
mistake "tier=dir:$WORK,tier_config=$WORK/conf" "tier_config is only for object stores"
mistake tier=s3:bucket "needs a bucket, as in s3://bucket/prefix"
mistake tier=s3://bucket/.job "is not of the form s3://BUCKET/PREFIX"
! grep -rqF "$secret" "$WORK/mistake" || fail "a message has a secret"
fake=$STORE_S3_PID
eval "exec ${STORE_S3[1]}>&-"
wait "$fake"
