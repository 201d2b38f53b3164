/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Maps an error of an S3 store to the result of the request, and to the way to retry it. */
#pragma once

enum s3_remedy {
	S3_FAIL,
	S3_REPEAT, /* may succeed when repeated */
	S3_RELOAD, /* may succeed with other credentials */
};
struct s3_failure {
	int result; /* when the request is not repeated (tier.h) */
	enum s3_remedy remedy;
	const char *why; /* cause for a message; NULL: quote the store */
};
/* `code`: of struct s3_error, or "". The HTTP status decides if the code is unknown. */
struct s3_failure s3_failure_of(const char *code, long status);
