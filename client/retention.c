/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/retention.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/le.h"

/* 1 or more; -EINVAL */
static int keep_parse_number(const char *s, uint64_t *ret)
{
	unsigned long long n;
	char *end;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	errno = 0;
	n = strtoull(s, &end, 10);
	if (errno != 0 || *end || n == 0)
		return -EINVAL;
	*ret = n;
	return 0;
}

bool keep_is_empty(const struct keep_policy *p)
{
	return p->last == 0 && p->every == 0 && p->within_ns == 0 && !p->tagged;
}

static const char *value_of(const char *word, const char *key)
{
	size_t len = strlen(key);

	return strncmp(word, key, len) == 0 && word[len] == '=' ? word + len + 1 : NULL;
}

static int parse_word(const char *word, struct keep_policy *p)
{
	const char *value;

	if (strcmp(word, "tagged") == 0 && !p->tagged) {
		p->tagged = true;
		return 0;
	}
	if ((value = value_of(word, "last")) && p->last == 0)
		return keep_parse_number(value, &p->last);
	if ((value = value_of(word, "every")) && p->every == 0)
		return keep_parse_number(value, &p->every);
	if ((value = value_of(word, "within")) && p->within_ns == 0)
		return parse_time(value, &p->within_ns);
	return -EINVAL;
}

int keep_parse(const char *p, size_t len, struct keep_policy *ret)
{
	struct keep_policy policy = { 0 };
	char text[KEEP_LEN_MAX + 1], *word = text, *comma;
	int r = 0;

	if (len == 0 || len > KEEP_LEN_MAX || memchr(p, '\0', len))
		return -EINVAL;
	memcpy(text, p, len);
	text[len] = '\0';
	do {
		comma = strchr(word, ',');
		if (comma)
			*comma = '\0';
		r = parse_word(word, &policy);
		word = comma ? comma + 1 : word;
	} while (r == 0 && comma);
	if (r < 0)
		return -EINVAL;
	*ret = policy;
	return 0;
}

void keep_author_encode(uint32_t uid, uint8_t ret[KEEP_AUTHOR_LEN])
{
	struct le32 d = le32_put(uid);

	ret[0] = '\0';
	memcpy(ret + 1, &d, sizeof(d));
}

int keep_stored_decode(const void *p, size_t len, size_t *ret_len, uint32_t *ret_uid)
{
	const uint8_t *b = p;
	struct le32 d;

	if (len < KEEP_AUTHOR_LEN || b[len - KEEP_AUTHOR_LEN] != '\0')
		return -EBADMSG;
	memcpy(&d, b + len - sizeof(d), sizeof(d));
	*ret_uid = le32_get(d);
	*ret_len = len - KEEP_AUTHOR_LEN;
	return 0;
}
