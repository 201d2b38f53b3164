/* SPDX-License-Identifier: GPL-3.0-or-later */
/* In place of tier_s3.c in a build without libcurl. */
#include "store/tier/s3/tier_s3.h"

#include <errno.h>

#include "base/log.h"
#include "base/util.h"

const char *tier_s3_refusal(const char *place _unused_)
{
	return "this ckptfs was built without S3, which needs libcurl";
}

int tier_s3_open(const char *place, const struct tier_s3_conf *conf _unused_, struct tier **ret _unused_)
{
	return log_cause(-EOPNOTSUPP, "tier s3://%s: %s", place, tier_s3_refusal(place));
}
