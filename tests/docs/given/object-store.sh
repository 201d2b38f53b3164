# SPDX-License-Identifier: GPL-3.0-or-later
# As guides.sh, and an S3 object store with the bucket `checkpoints`, which ends with this shell. /etc/ckptfs.s3 is the file of the
# guide, for this store.
. tests/docs/given/guides.sh
coproc STORE_S3 { exec /usr/bin/python3 "$TOP/tests/tier/fake_s3.py" --bucket checkpoints; }
read -r port <&"${STORE_S3[0]}"
echo credentials AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY >&"${STORE_S3[1]}"
read -r _ <&"${STORE_S3[0]}"
(umask 077 && cat >/etc/ckptfs.s3) <<S3
endpoint_url = http://127.0.0.1:$port
aws_access_key_id = AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
S3
