/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/json/json_flat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_pull.h"
#include "base/util.h"

#define DEPTH_MAX 8
#define PATH_MAX_LEN 256
#define KEY_MAX_LEN 128
#define VALUE_MAX_LEN (4096 + 256)
#define NUMBER_MAX_LEN 64

struct parser {
	struct json_pull pull;
	char path[PATH_MAX_LEN];
	struct json_flat out;
};

void json_flat_release(struct json_flat *j)
{
	for (size_t i = 0; i < j->nr; i++) {
		free(j->entry[i].path);
		free(j->entry[i].value);
	}
	free(j->entry);
	*j = (struct json_flat){ 0 };
}

static int add_entry(struct parser *s, const char *value)
{
	struct json_entry *more = reallocarray(s->out.entry, s->out.nr + 1, sizeof(*more));
	struct json_entry e = { NULL, NULL };

	if (!more)
		return -ENOMEM;
	s->out.entry = more;
	e.path = strdup(s->path);
	e.value = strdup(value);
	s->out.entry[s->out.nr++] = e; /* released with the rest, complete or not */
	return e.path && e.value ? 0 : -ENOMEM;
}

static int take_object(struct parser *s, unsigned depth);

static int take_value(struct parser *s, unsigned depth)
{
	enum json_token token = json_pull(&s->pull);
	char value[VALUE_MAX_LEN];
	int r;

	if (token == JSON_OBJECT)
		return take_object(s, depth + 1);
	if (token == JSON_STRING) {
		r = json_decode(&s->pull, value, sizeof(value));
		return r < 0 ? r : add_entry(s, value);
	}
	if ((token != JSON_NUMBER && token != JSON_WORD) || s->pull.len >= NUMBER_MAX_LEN)
		return -EBADMSG;
	memcpy(value, s->pull.text, s->pull.len);
	value[s->pull.len] = '\0';
	return add_entry(s, value);
}

/* With its key as the current token. */
static int take_member(struct parser *s, unsigned depth)
{
	size_t len = strlen(s->path);
	char key[KEY_MAX_LEN];
	int r = json_decode(&s->pull, key, sizeof(key));

	if (r < 0)
		return r;
	if (json_pull(&s->pull) != JSON_COLON || len + 1 + strlen(key) >= sizeof(s->path))
		return -EBADMSG;
	if (len > 0)
		strcat(s->path, ".");
	strcat(s->path, key);
	r = take_value(s, depth);
	s->path[len] = '\0';
	return r;
}

/* After its opening brace. */
static int take_object(struct parser *s, unsigned depth)
{
	enum json_token token = json_pull(&s->pull);
	int r;

	if (depth > DEPTH_MAX)
		return -EBADMSG;
	if (token == JSON_OBJECT_END)
		return 0;
	for (;; token = json_pull(&s->pull)) {
		r = token == JSON_STRING ? take_member(s, depth) : -EBADMSG;
		if (r < 0)
			return r;
		token = json_pull(&s->pull);
		if (token != JSON_COMMA)
			return token == JSON_OBJECT_END ? 0 : -EBADMSG;
	}
}

int json_flat_parse(const char *text, size_t len, struct json_flat *ret)
{
	struct parser s = { .pull = { .p = text, .end = text + len } };
	int r = json_pull(&s.pull) == JSON_OBJECT ? take_object(&s, 0) : -EBADMSG;

	if (r == 0 && json_pull(&s.pull) != JSON_END)
		r = -EBADMSG;
	if (r < 0) {
		json_flat_release(&s.out);
		return r;
	}
	*ret = s.out;
	return 0;
}

const char *json_flat_get(const struct json_flat *j, const char *path)
{
	for (size_t i = 0; i < j->nr; i++)
		if (strcmp(j->entry[i].path, path) == 0)
			return j->entry[i].value;
	return "";
}

uint64_t json_flat_u64(const struct json_flat *j, const char *path)
{
	return strtoull(json_flat_get(j, path), NULL, 10);
}
