/* Writes JSON: keys in the order of the calls; the writer inserts commas. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
	struct buf *out; /* borrowed; check buf_error() at the end */
	bool comma;
};

static inline struct json json_to(struct buf *out)
{
	return (struct json){ out, false };
}

void json_open(struct json *j, const char *key); /* key NULL: the document itself */
void json_close(struct json *j);
void json_u64(struct json *j, const char *key, uint64_t v);
void json_ratio(struct json *j, const char *key, double v); /* three decimals */
void json_bool(struct json *j, const char *key, bool v);
void json_string(struct json *j, const char *key, const char *v);
