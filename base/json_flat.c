#include "base/json_flat.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define DEPTH_MAX 8
#define PATH_MAX_LEN 256

struct parser {
	const char *p, *end;
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

static bool take_char(struct parser *s, char c)
{
	while (s->p < s->end && strchr(" \t\r\n", *s->p))
		s->p++;
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

/* A string after its opening quote. Escapes other than \uXXXX below 256 do not occur in what the daemon writes. */
static int take_string(struct parser *s, char *ret, size_t size)
{
	size_t n = 0;

	while (s->p < s->end && *s->p != '"') {
		char c = *s->p++;

		if (c == '\\' && s->p < s->end) {
			c = *s->p++;
			if (c == 'u') {
				char hex[5] = { 0 };

				if (s->end - s->p < 4)
					return -EBADMSG;
				memcpy(hex, s->p, 4);
				c = (char)strtoul(hex, NULL, 16);
				s->p += 4;
			}
		}
		if (n + 1 >= size)
			return -EBADMSG;
		ret[n++] = c;
	}
	if (s->p == s->end)
		return -EBADMSG;
	s->p++;
	ret[n] = '\0';
	return 0;
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

static int take_scalar(struct parser *s)
{
	char value[4096 + 256];
	size_t n = 0;
	int r;

	if (take_char(s, '"')) {
		r = take_string(s, value, sizeof(value));
		return r < 0 ? r : add_entry(s, value);
	}
	while (s->p + n < s->end && !strchr(",} \t\r\n", s->p[n]))
		n++;
	if (n == 0 || n >= 64)
		return -EBADMSG;
	memcpy(value, s->p, n);
	value[n] = '\0';
	s->p += n;
	return add_entry(s, value);
}

static int take_object(struct parser *s, unsigned depth);

static int take_member(struct parser *s, unsigned depth)
{
	size_t len = strlen(s->path);
	char key[128];
	int r;

	if (!take_char(s, '"'))
		return -EBADMSG;
	r = take_string(s, key, sizeof(key));
	if (r < 0)
		return r;
	if (!take_char(s, ':') || len + 1 + strlen(key) >= sizeof(s->path))
		return -EBADMSG;
	if (len > 0)
		strcat(s->path, ".");
	strcat(s->path, key);
	r = take_char(s, '{') ? take_object(s, depth + 1) : take_scalar(s);
	s->path[len] = '\0';
	return r;
}

/* After its opening brace. */
static int take_object(struct parser *s, unsigned depth)
{
	int r;

	if (depth > DEPTH_MAX)
		return -EBADMSG;
	if (take_char(s, '}'))
		return 0;
	do {
		r = take_member(s, depth);
		if (r < 0)
			return r;
	} while (take_char(s, ','));
	return take_char(s, '}') ? 0 : -EBADMSG;
}

int json_flat_parse(const char *text, size_t len, struct json_flat *ret)
{
	struct parser s = { .p = text, .end = text + len };
	int r = take_char(&s, '{') ? take_object(&s, 0) : -EBADMSG;

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
