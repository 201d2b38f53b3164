#include "store/classify/json_pull.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static enum json_token bad(struct json_pull *j)
{
	j->p = j->end;
	j->text = NULL; /* makes json_pull() return JSON_BAD again */
	return JSON_BAD;
}

static enum json_token string(struct json_pull *j)
{
	for (j->text = j->p; j->p < j->end && *j->p != '"'; j->p++)
		if (*j->p == '\\' && ++j->p == j->end)
			break;
	if (j->p >= j->end)
		return bad(j);
	j->len = (size_t)(j->p - j->text);
	j->p++;
	return JSON_STRING;
}

static enum json_token run(struct json_pull *j, const char *of, enum json_token token)
{
	j->text = j->p;
	while (j->p < j->end && *j->p != 0 && strchr(of, *j->p))
		j->p++;
	j->len = (size_t)(j->p - j->text);
	return j->len > 0 ? token : bad(j);
}

enum json_token json_pull(struct json_pull *j)
{
	static const char marks[] = "{}[]:,";
	const char *mark;

	while (j->p < j->end && *j->p != 0 && strchr(" \t\r\n", *j->p))
		j->p++;
	if (j->p == j->end)
		return JSON_END;
	mark = *j->p != 0 ? strchr(marks, *j->p) : NULL;
	if (mark) {
		j->p++;
		return JSON_OBJECT + (enum json_token)(mark - marks);
	}
	if (*j->p == '"') {
		j->p++;
		return string(j);
	}
	if (*j->p >= 'a' && *j->p <= 'z')
		return run(j, "abcdefghijklmnopqrstuvwxyz", JSON_WORD);
	return run(j, "0123456789+-.eE", JSON_NUMBER);
}

/* Commas and colons are not checked: the value is not used. */
int json_skip(struct json_pull *j, enum json_token first)
{
	size_t depth = 0;

	for (;; first = json_pull(j)) {
		if (first == JSON_OBJECT || first == JSON_ARRAY)
			depth++;
		else if (first == JSON_OBJECT_END || first == JSON_ARRAY_END) {
			if (depth == 0)
				return -EBADMSG;
			depth--;
		} else if (first == JSON_BAD || first == JSON_END)
			return -EBADMSG;
		if (depth == 0)
			return 0;
	}
}

int json_number(const struct json_pull *j, uint64_t *ret)
{
	uint64_t n = 0;

	for (size_t i = 0; i < j->len; i++) {
		if (j->text[i] < '0' || j->text[i] > '9' || __builtin_mul_overflow(n, UINT64_C(10), &n) ||
		    __builtin_add_overflow(n, (uint64_t)(j->text[i] - '0'), &n))
			return -EBADMSG;
	}
	*ret = n;
	return 0;
}
