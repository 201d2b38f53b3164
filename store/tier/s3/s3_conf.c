/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/tier/s3/s3_conf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "store/tier/tier.h"

#define FILE_MAX ((size_t)1 << 20)

/* --- settings --- */

enum value_kind { TOKEN, REGION, ENDPOINT, PATH, STYLE };

/* Names in files; the last one is also valid below `s3 =`. */
static const struct setting {
	const char *name;
	size_t off;
	enum value_kind kind;
} settings[] = {
	{ "aws_access_key_id", offsetof(struct s3_conf, access_key), TOKEN },
	{ "aws_secret_access_key", offsetof(struct s3_conf, secret_key), TOKEN },
	{ "aws_session_token", offsetof(struct s3_conf, session_token), TOKEN },
	{ "region", offsetof(struct s3_conf, region), REGION },
	{ "endpoint_url", offsetof(struct s3_conf, endpoint), ENDPOINT },
	{ "ca_bundle", offsetof(struct s3_conf, ca_bundle), PATH },
	{ "addressing_style", offsetof(struct s3_conf, addressing_style), STYLE },
};

static char **field_of(struct s3_conf *c, const struct setting *s)
{
	return (char **)((char *)c + s->off);
}

static void wipe_text(char **s)
{
	if (*s)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

void s3_conf_release(struct s3_conf *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		wipe_text(field_of(c, &settings[i]));
}

/* A value must not contain line ends or unprintable characters: values become part of requests and messages. */
static const char *fault_of(enum value_kind kind, const char *value)
{
	struct s3_endpoint e;

	for (const char *c = value; *c; c++)
		if (*c < ' ' || *c > '~' || (*c == ' ' && kind != PATH))
			return "the value has characters that are not allowed";
	switch (kind) {
	case TOKEN:
	case PATH:
		return NULL;
	case REGION:
		for (const char *c = value; *c; c++)
			if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_')
				return "the region has characters other than letters, digits, `-` and `_`";
		return NULL;
	case ENDPOINT:
		return s3_endpoint_parse(value, &e) < 0 ? "the endpoint is not of the form https://HOST[:PORT]" : NULL;
	case STYLE:
		return strcmp(value, "path") == 0 || strcmp(value, "virtual") == 0 || strcmp(value, "auto") == 0 ?
			       NULL :
			       "the addressing style is not `path`, `virtual` or `auto`";
	}
	return NULL;
}

/* --- files --- */

struct text {
	const char *p;
	size_t len;
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct text trim_blanks(struct text t)
{
	for (; t.len > 0 && is_blank(*t.p); t.p++)
		t.len--;
	while (t.len > 0 && is_blank(t.p[t.len - 1]))
		t.len--;
	return t;
}

static bool text_is(struct text t, const char *s)
{
	return t.len == strlen(s) && (t.len == 0 || memcmp(t.p, s, t.len) == 0);
}

/* Strips a trailing comment. */
static struct text without_comment(struct text t)
{
	for (size_t i = 1; i < t.len; i++)
		if ((t.p[i] == '#' || t.p[i] == ';') && is_blank(t.p[i - 1]))
			return trim_blanks((struct text){ t.p, i });
	return t;
}

struct parse {
	enum s3_conf_kind kind;
	const char *profile;
	struct s3_conf *conf;
	bool is_inside, found; /* the section of the profile */
	bool is_of_s3; /* below `s3 =`: indented lines are settings of S3 */
	const char *what;
};

static bool names_profile(const struct parse *p, struct text section)
{
	if (p->kind == S3_CONF_CONFIG && !text_is(section, "default")) {
		if (section.len < 8 || memcmp(section.p, "profile", 7) != 0 || !is_blank(section.p[7]))
			return false;
		section = trim_blanks((struct text){ section.p + 8, section.len - 8 });
	}
	return text_is(section, p->profile);
}

static int parse_section(struct parse *p, struct text line)
{
	const char *end = memchr(line.p, ']', line.len);

	if (p->kind == S3_CONF_OWN)
		p->what = "sections are not allowed in this file";
	else if (!end)
		p->what = "a section has no closing bracket";
	if (p->what)
		return -EINVAL;
	p->is_inside = names_profile(p, trim_blanks((struct text){ line.p + 1, (size_t)(end - line.p) - 1 }));
	p->found = p->found || p->is_inside;
	p->is_of_s3 = false;
	return 0;
}

static int set_value(struct parse *p, const struct setting *s, struct text value)
{
	char **to = field_of(p->conf, s);

	if (*to && p->kind == S3_CONF_OWN)
		p->what = "a setting is given twice";
	else if (memchr(value.p, '\0', value.len))
		p->what = "the value has characters that are not allowed";
	if (p->what)
		return -EINVAL;
	wipe_text(to); /* in the shared files the last value counts */
	if (value.len == 0)
		return 0;
	*to = strndup(value.p, value.len);
	if (!*to)
		return -ENOMEM;
	p->what = fault_of(s->kind, *to);
	return p->what ? -EINVAL : 0;
}

static int parse_line(struct parse *p, struct text whole)
{
	bool is_indented = whole.len > 0 && is_blank(whole.p[0]);
	struct text line = trim_blanks(whole), key, value;
	const char *equals;

	if (line.len == 0 || line.p[0] == '#' || line.p[0] == ';')
		return 0;
	if (line.p[0] == '[' && !is_indented)
		return parse_section(p, line);
	if (!p->is_inside)
		return 0;
	equals = memchr(line.p, '=', line.len);
	if (!equals) {
		p->what = p->kind == S3_CONF_OWN ? "the line has no `=`" : NULL;
		return p->what ? -EINVAL : 0;
	}
	key = trim_blanks((struct text){ line.p, (size_t)(equals - line.p) });
	value = without_comment(trim_blanks((struct text){ equals + 1, (size_t)(line.p + line.len - equals) - 1 }));
	if (p->kind != S3_CONF_OWN && is_indented)
		return p->is_of_s3 && text_is(key, "addressing_style") ?
			       set_value(p, &settings[ARRAY_SIZE(settings) - 1], value) :
			       0;
	p->is_of_s3 = text_is(key, "s3");
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (text_is(key, settings[i].name))
			return set_value(p, &settings[i], value);
	p->what = p->kind == S3_CONF_OWN ? "unknown setting" : NULL; /* the shared files have many others */
	return p->what ? -EINVAL : 0;
}

int s3_conf_parse(const char *bytes, size_t len, enum s3_conf_kind kind, const char *profile, struct s3_conf *ret,
		  struct s3_conf_error *ret_error)
{
	struct parse p = { .kind = kind, .profile = profile, .conf = ret };
	unsigned line = 0;
	int r = 0;

	*ret = (struct s3_conf){ 0 };
	*ret_error = (struct s3_conf_error){ 0 };
	p.is_inside = p.found = kind == S3_CONF_OWN;
	for (size_t at = 0; at < len && r == 0; line++) {
		const char *end = memchr(bytes + at, '\n', len - at);
		size_t n = end ? (size_t)(end - bytes) - at : len - at;

		r = parse_line(&p, (struct text){ bytes + at, n });
		at += n + 1;
	}
	if (r == 0 && !ret->access_key != !ret->secret_key) {
		p.what = "aws_access_key_id and aws_secret_access_key must be set together";
		r = -EINVAL;
	}
	if (r == -EINVAL)
		*ret_error = (struct s3_conf_error){ line, p.what };
	return r < 0 ? r : p.found;
}

struct bytes {
	char *p;
	size_t len, size;
};

static void bytes_release(struct bytes *b)
{
	if (b->p)
		explicit_bzero(b->p, b->size);
	free(b->p);
}

static bool is_private(const struct stat *st)
{
	return S_ISREG(st->st_mode) && (st->st_uid == 0 || st->st_uid == geteuid()) && (st->st_mode & 077) == 0;
}

static int read_file(const char *path, bool must_be_private, struct bytes *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return (errno == ENOENT || errno == ENOTDIR) && !must_be_private ?
			       -ENOENT :
			       log_errno(-errno, "%s: cannot open", path);
	if (fstat(fd, &st) < 0)
		return log_errno(-errno, "%s: cannot get attributes", path);
	if (must_be_private && !is_private(&st))
		return log_cause(-EACCES,
				 "%s: must be a file of root or of the user without access for others, since it has "
				 "credentials: chmod 600 %s",
				 path, path);
	if (!S_ISREG(st.st_mode))
		return log_cause(-EINVAL, "%s: not a regular file", path);
	ret->size = FILE_MAX + 1;
	ret->p = malloc(ret->size);
	if (!ret->p)
		return -ENOMEM;
	n = io_pread(fd, ret->p, ret->size, 0);
	if (n < 0)
		return log_errno((int)n, "%s: cannot read", path);
	if ((size_t)n > FILE_MAX)
		return log_cause(-EFBIG, "%s: is larger than 1 MiB", path);
	ret->len = (size_t)n;
	return 0;
}

/* 1; 0: there is no such file or profile. */
static int load_file(const char *path, enum s3_conf_kind kind, const char *profile, struct s3_conf *ret)
{
	_cleanup_(bytes_release) struct bytes b = { 0 };
	struct s3_conf_error e;
	int r = read_file(path, kind == S3_CONF_OWN, &b);

	*ret = (struct s3_conf){ 0 };
	if (r < 0)
		return r == -ENOENT && kind != S3_CONF_OWN ? 0 : r;
	r = s3_conf_parse(b.p, b.len, kind, profile, ret, &e);
	if (r == -EINVAL)
		log_error("%s: line %u: %s", path, e.line, e.what);
	if (r < 0)
		s3_conf_release(ret);
	return r;
}

/* --- all sources --- */

/* Moves settings that `to` lacks. Credentials are moved together or not at all. */
static void merge_conf(struct s3_conf *to, struct s3_conf *from)
{
	bool has_credentials = to->access_key != NULL;

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		char **a = field_of(to, &settings[i]), **b = field_of(from, &settings[i]);

		if (!*a && !(settings[i].kind == TOKEN && has_credentials))
			*a = TAKE(*b);
	}
	s3_conf_release(from);
}

static const char *environment_value(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/*
 * /proc/PID/environ shows the memory of the initial environment. Secrets are therefore moved from there to this table,
 * which later loads read. Child processes do not inherit them.
 */
static struct mutex taken_lock = MUTEX_INIT; /* leaf */
static struct taken {
	const char *name;
	char *value;
} taken[] GUARDED_BY(taken_lock) = { { "AWS_SECRET_ACCESS_KEY", NULL }, { "AWS_SESSION_TOKEN", NULL } };

static int take_secret(struct taken *t, char **ret) REQUIRES(taken_lock)
{
	char *value = secure_getenv(t->name);

	if (!value) {
		wipe_text(&t->value); /* unset since the last load */
	} else if (*value) {
		char *copy = strdup(value);

		if (!copy)
			return -ENOMEM;
		wipe_text(&t->value);
		t->value = copy;
		explicit_bzero(value, strlen(value));
	}
	*ret = t->value ? strdup(t->value) : NULL;
	return t->value && !*ret ? -ENOMEM : 0;
}

/* A copy of the variable; NULL: it is not set. */
static int copy_variable(const char *name, char **ret)
{
	const char *value;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		if (strcmp(taken[i].name, name) == 0) {
			mutex_lock(&taken_lock);
			r = take_secret(&taken[i], ret);
			mutex_unlock(&taken_lock);
			return r;
		}
	value = environment_value(name);
	*ret = value ? strdup(value) : NULL;
	return value && !*ret ? -ENOMEM : 0;
}

static int load_environment(struct s3_conf *ret)
{
	static const struct {
		const char *name;
		unsigned setting;
	} variables[] = {
		{ "AWS_ACCESS_KEY_ID", 0 }, { "AWS_SECRET_ACCESS_KEY", 1 }, { "AWS_SESSION_TOKEN", 2 },
		{ "AWS_REGION", 3 },	    { "AWS_DEFAULT_REGION", 3 },    { "AWS_ENDPOINT_URL_S3", 4 },
		{ "AWS_ENDPOINT_URL", 4 },  { "AWS_CA_BUNDLE", 5 },
	};

	*ret = (struct s3_conf){ 0 };
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const struct setting *s = &settings[variables[i].setting];
		const char *fault;
		int r;

		if (*field_of(ret, s))
			continue;
		r = copy_variable(variables[i].name, field_of(ret, s));
		if (r < 0)
			return r;
		fault = *field_of(ret, s) ? fault_of(s->kind, *field_of(ret, s)) : NULL;
		if (fault)
			return log_cause(-EINVAL, "environment variable %s: %s", variables[i].name, fault);
	}
	if (!ret->access_key != !ret->secret_key)
		return log_cause(-EINVAL,
				 "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set together");
	if (!ret->access_key)
		wipe_text(&ret->session_token);
	return 0;
}

/* The path of a shared file; NULL: there is no home directory. */
static char *shared_file(const char *variable, const char *below_home)
{
	const char *path = environment_value(variable), *home = environment_value("HOME");
	const struct passwd *user = home || path ? NULL : getpwuid(geteuid());
	char *ret = NULL;

	if (path)
		return strdup(path);
	home = home ? home : user ? user->pw_dir : NULL;
	return home && asprintf(&ret, "%s/%s", home, below_home) >= 0 ? ret : NULL;
}

static int load_shared(struct s3_conf *c)
{
	static const struct {
		const char *variable, *path;
		enum s3_conf_kind kind;
	} files[] = {
		{ "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", S3_CONF_CREDENTIALS },
		{ "AWS_CONFIG_FILE", ".aws/config", S3_CONF_CONFIG },
	};
	const char *named = environment_value("AWS_PROFILE");
	bool found = false;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_(freep) char *path = shared_file(files[i].variable, files[i].path);
		struct s3_conf one;
		int r;

		if (!path)
			continue;
		r = load_file(path, files[i].kind, named ? named : "default", &one);
		if (r < 0)
			return r;
		found = found || r > 0;
		merge_conf(c, &one);
	}
	if (named && !found)
		return log_cause(-EINVAL, "environment variable AWS_PROFILE: not found in the shared files");
	return 0;
}

int s3_conf_load(const char *file, struct s3_conf *ret)
{
	_cleanup_(s3_conf_release) struct s3_conf c = { 0 }, env = { 0 };
	int r = file ? load_file(file, S3_CONF_OWN, "", &c) : 0;

	if (r >= 0)
		r = load_environment(&env);
	if (r < 0)
		return r;
	merge_conf(&c, &env);
	r = load_shared(&c);
	if (r < 0)
		return r;
	if (!c.access_key)
		return log_cause(-EACCES, "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
					  "AWS_PROFILE, or name a file with the option tier_config");
	if (!c.region) {
		c.region = strdup("us-east-1");
		if (!c.region)
			return -ENOMEM;
	}
	*ret = c;
	c = (struct s3_conf){ 0 };
	return 0;
}

/* --- endpoint and place --- */

static bool is_host(const char *s, size_t len)
{
	bool is_v6 = len > 2 && s[0] == '[' && s[len - 1] == ']';

	if (len == 0 || len >= sizeof(((struct s3_endpoint *)NULL)->host))
		return false;
	for (size_t i = is_v6; i < len - is_v6; i++)
		if (!(is_v6 ? isxdigit((unsigned char)s[i]) || s[i] == ':' || s[i] == '.' :
			      isalnum((unsigned char)s[i]) || s[i] == '-' || s[i] == '.' || s[i] == '_'))
			return false;
	return true;
}

int s3_endpoint_parse(const char *s, struct s3_endpoint *ret)
{
	struct s3_endpoint e = { .is_tls = strncmp(s, "https://", 8) == 0 };
	size_t len, host;
	unsigned long port = 0;
	const char *colon;

	if (!e.is_tls && strncmp(s, "http://", 7) != 0)
		return -EINVAL;
	s += e.is_tls ? 8 : 7;
	len = strlen(s);
	if (len > 0 && s[len - 1] == '/')
		len--;
	colon = memrchr(s, ':', len);
	if (colon && memchr(colon, ']', len - (size_t)(colon - s)))
		colon = NULL; /* within an address */
	host = colon ? (size_t)(colon - s) : len;
	if (!is_host(s, host))
		return -EINVAL;
	for (size_t i = host + 1; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		port = port * 10 + (unsigned long)(s[i] - '0');
		if (port > 65535)
			return -EINVAL;
	}
	if (colon && port == 0)
		return -EINVAL;
	memcpy(e.host, s, host);
	if (port == 0 || port == (e.is_tls ? 443 : 80))
		memcpy(e.authority, e.host, sizeof(e.host));
	else
		snprintf(e.authority, sizeof(e.authority), "%s:%lu", e.host, port);
	*ret = e;
	return 0;
}

int s3_place_parse(const char *s, struct s3_place *ret)
{
	size_t len = strcspn(s, "/");
	const char *prefix = s[len] == '/' ? s + len + 1 : "";

	if (len < 3 || len >= sizeof(ret->bucket) || !isalnum((unsigned char)s[0]))
		return -EINVAL;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '-' && s[i] != '.' && s[i] != '_')
			return -EINVAL;
	if (*prefix && !tier_name_is_valid(prefix))
		return -EINVAL;
	*ret = (struct s3_place){ .prefix = prefix };
	memcpy(ret->bucket, s, len);
	return 0;
}
