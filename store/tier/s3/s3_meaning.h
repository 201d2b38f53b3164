/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What an error of an S3 store means for the request that it answers. */
#pragma once

enum s3_remedy {
	S3_FAIL,
	S3_REPEAT, /* it may succeed the next time */
	S3_RELOAD, /* it may with other credentials */
};
struct s3_meaning {
	int result; /* of a request that is not repeated any more (tier.h) */
	enum s3_remedy remedy;
	const char *why; /* in plain words; NULL: only the store can say */
};
/* `code`: of struct s3_error, or "". A code that is not listed means what the HTTP status does. */
struct s3_meaning s3_meaning_of(const char *code, long status);
