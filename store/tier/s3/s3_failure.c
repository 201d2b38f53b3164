/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/s3/s3_failure.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/util.h"

/* Looked up by code, then by status: codes differ less between stores than statuses do. */
static const struct {
	const char *code;
	long status;
	struct s3_failure failure;
} failures[] = {
	{ "SlowDown", 0, { -EAGAIN, S3_REPEAT, "the store is overloaded" } },
	{ "TooManyRequests", 0, { -EAGAIN, S3_REPEAT, "the store is overloaded" } },
	{ "ServiceUnavailable", 0, { -EAGAIN, S3_REPEAT, "the store is overloaded" } },
	{ "OperationAborted", 0, { -EAGAIN, S3_REPEAT, "another request for this object is in progress" } },
	{ "ConditionalRequestConflict", 0, { -EAGAIN, S3_REPEAT, "another request for this object is in progress" } },
	{ "ConcurrentModification", 0, { -EAGAIN, S3_REPEAT, "another request for this object is in progress" } },
	{ "InternalError", 0, { -EIO, S3_REPEAT, "the store has an internal error" } },
	{ "RequestTimeout", 0, { -ETIMEDOUT, S3_REPEAT, "the store did not receive the request in time" } },
	{ "IncompleteBody", 0, { -EIO, S3_REPEAT, "the store received fewer bytes than were sent" } },
	{ "BadDigest", 0, { -EIO, S3_REPEAT, "the store received other bytes than were sent" } },
	{ "XAmzContentSHA256Mismatch", 0, { -EIO, S3_REPEAT, "the store received other bytes than were sent" } },
	{ "ExpiredToken", 0, { -EACCES, S3_RELOAD, "the credentials have expired: renew them" } },
	{ "TokenRefreshRequired", 0, { -EACCES, S3_RELOAD, "the credentials have expired: renew them" } },
	{ "InvalidToken", 0, { -EACCES, S3_RELOAD, "the store does not accept the session token: renew the credentials" } },
	{ "InvalidAccessKeyId", 0, { -EACCES, S3_RELOAD, "the store has no such access key" } },
	{ "SignatureDoesNotMatch",
	  0,
	  { -EACCES, S3_RELOAD, "the signature does not match: the secret key is wrong, or a proxy changes requests" } },
	{ "AccessDenied",
	  0,
	  { -EACCES, S3_RELOAD,
	    "access denied: the credentials lack a permission, or the bucket belongs to another account" } },
	{ "NoSuchBucket", 0, { -ENXIO, S3_FAIL, "the bucket does not exist" } },
	{ "InvalidBucketName", 0, { -EINVAL, S3_FAIL, "the store does not allow such a bucket name" } },
	{ "QuotaExceeded", 0, { -EDQUOT, S3_FAIL, "the quota of the bucket or user is exceeded" } },
	{ "EntityTooLarge", 0, { -EFBIG, S3_FAIL, "the store does not accept objects of this size" } },
	{ "NotImplemented", 0, { -EOPNOTSUPP, S3_FAIL, "the store does not implement this request" } },
	{ "InsufficientStorage", 0, { -ENOSPC, S3_FAIL, "the store is full" } },
	{ "RequestTimeTooSkewed", 0, { -EACCES, S3_FAIL, "the clock of this machine differs from the store's: set it" } },
	{ NULL, 429, { -EAGAIN, S3_REPEAT, "the store is overloaded" } },
	{ NULL, 503, { -EAGAIN, S3_REPEAT, "the store is overloaded" } },
	{ NULL, 507, { -ENOSPC, S3_FAIL, "the store is full" } },
	{ NULL, 409, { -EAGAIN, S3_REPEAT, "another request for this object is in progress" } },
	{ NULL, 408, { -ETIMEDOUT, S3_REPEAT, "the store did not receive the request in time" } },
	{ NULL, 500, { -EIO, S3_REPEAT, "the store has an internal error" } },
	{ NULL, 502, { -EIO, S3_REPEAT, "a proxy cannot reach the store" } },
	{ NULL, 504, { -EIO, S3_REPEAT, "a proxy cannot reach the store" } },
	{ NULL, 501, { -EOPNOTSUPP, S3_FAIL, "the store does not implement this request" } },
	{ NULL, 401, { -EACCES, S3_FAIL, NULL } },
	{ NULL, 403, { -EACCES, S3_FAIL, NULL } },
};

struct s3_failure s3_failure_of(const char *code, long status)
{
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
		if (failures[i].code ? strcmp(failures[i].code, code) == 0 : failures[i].status == status)
			return failures[i].failure;
	return (struct s3_failure){ -EIO, S3_FAIL, NULL };
}
