/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "base/command.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/util.h"

#define OPTIONS_MAX 40
#define COLUMN_MAX 24 /* where descriptions begin at the latest */
#define LETTERLESS 256 /* getopt's value of option 0, beyond all letters */

#define WORD_MAX 24 /* of words that are compared */
#define DISTANCE_MAX 2

static const struct conf_key standard[] = {
	{ "help", CONF_FLAG, 0, .letter = 'h', .help = "print this text and exit" },
	{ "version", CONF_FLAG, 0, .letter = 'V', .help = "print the version and exit" },
	COMMAND_END,
};

/* "-q, --quiet", "--rate SIZE" */
static void option_head(const struct conf_key *k, char *ret, size_t size)
{
	const char *value = conf_value_name(k);
	char letter[3] = { '-', k->letter, '\0' };

	snprintf(ret, size, "%s%s%s%s%s%s%s", k->letter ? letter : "", k->letter && *k->name ? ", " : "",
		 *k->name ? "--" : "", k->name, !value ? "" : k->missing ? " [" : " ", value ? value : "",
		 value && k->missing ? "]" : "");
}

static void options_help(const struct conf_key *keys, size_t column, FILE *to)
{
	char head[128];

	for (const struct conf_key *k = keys; k->name; k++)
		if (k->help) {
			option_head(k, head, sizeof(head));
			help_entry(to, head, column, k);
		}
}

static size_t options_column(const struct conf_key *keys)
{
	size_t column = 0;
	char head[128];

	for (const struct conf_key *k = keys; k->name; k++)
		if (k->help) {
			option_head(k, head, sizeof(head));
			if (strlen(head) + 4 <= COLUMN_MAX)
				column = MAX(column, strlen(head) + 4);
		}
	return column;
}

static void wrap_lines(FILE *to, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		char line[1024];

		snprintf(line, sizeof(line), "%.*s", (int)len, text);
		help_wrap(to, 0, 0, line);
		text += len + (text[len] == '\n');
	}
}

static void print_help(const struct command *c, FILE *to)
{
	size_t column = MAX(options_column(c->options), options_column(standard));

	fprintf(to, "Usage: %s", c->usage);
	wrap_lines(to, c->about);
	fputc('\n', to);
	options_help(c->options, column, to);
	options_help(standard, column, to);
	fputc('\n', to);
	if (c->more) {
		c->more(to);
		fputc('\n', to);
	}
	wrap_lines(to, c->footer);
}

static bool is_number(const char *s)
{
	char *end;

	(void)strtod(s, &end);
	return *s >= '0' && *s <= '9' && *end == '\0';
}

/* A number may stand apart even if the value is optional: --watch 2. */
static const char *option_value(const struct conf_key *k, int argc, char *argv[])
{
	if (optarg || !k->missing)
		return optarg;
	return optind < argc && is_number(argv[optind]) ? argv[optind++] : k->missing;
}

static int take_option(const struct command *c, const struct conf_key *k, void *request, const char *value)
{
	const char *why = NULL;
	int r = conf_set_key(k, request, value, &why);

	if (r == -EINVAL)
		text_printf(stderr, "%s: %s%s%.*s%s%s: %s\n", c->name, *k->name ? "--" : "-", k->name, *k->name ? 0 : 1,
			    &k->letter, value ? " " : "", value ? value : "", why);
	else if (r < 0)
		text_printf(stderr, "%s: %s\n", c->name, strerror(-r));
	return MIN(r, 0);
}

/* Is `value` of an option in these tables? */
static bool is_option(int value, const char *letters)
{
	return value >= LETTERLESS || (value > 0 && value != ':' && value != '+' && strchr(letters, value));
}

void command_refusal(int value, const char *letters, char *const argv[], char ret[COMMAND_REFUSAL_MAX])
{
	const char *word = argv[optind - 1]; /* not if it is of several letters that are not all read */
	bool is_word = value == ':' ? strncmp(word, "--", 2) == 0 : optopt == 0 || is_option(optopt, letters);
	char letter[3] = { '-', (char)optopt, '\0' };

	snprintf(ret, COMMAND_REFUSAL_MAX, "%.400s: %s", is_word ? word : letter,
		 value == ':'		    ? "needs a value" :
		 optopt == 0		    ? "no such option, or ambiguous" :
		 is_option(optopt, letters) ? "takes no value" :
					      "no such option");
}

/* Letters to insert, delete, replace, or swap with the next one. Both words are at most WORD_MAX long. */
static size_t distance(const char *a, const char *b)
{
	size_t d[WORD_MAX + 1][WORD_MAX + 1], la = strlen(a), lb = strlen(b);

	for (size_t i = 0; i <= la; i++)
		for (size_t j = 0; j <= lb; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			d[i][j] = MIN(d[i - 1][j], d[i][j - 1]) + 1;
			d[i][j] = MIN(d[i][j], d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d[i][j] = MIN(d[i][j], d[i - 2][j - 2] + 1);
		}
	return d[la][lb];
}

void nearest_offer(struct nearest *n, const char *name)
{
	size_t len = strlen(n->word), least = n->name ? n->distance : DISTANCE_MAX + 1, this;

	if (len < 2 || len > WORD_MAX || strlen(name) > WORD_MAX)
		return;
	this = strncmp(name, n->word, len) == 0 ? 1 : distance(n->word, name);
	if (this < MIN(least, len)) { /* with as many changes as letters, any word becomes any other */
		n->name = name;
		n->distance = this;
	}
}

/* Tables for getopt_long(); their values are LETTERLESS + the number of the key. */
static void build_tables(const struct command *c, struct option *longs, char *letters)
{
	size_t nr = 0;

	if (c->is_prefix)
		*letters++ = '+';
	*letters++ = ':';
	for (const struct conf_key *set = c->options; set; set = set == c->options ? standard : NULL)
		for (const struct conf_key *k = set; k->name; k++) {
			bool has_value = k->type != CONF_FLAG;

			if (*k->name)
				longs[nr++] = (struct option){
					.name = k->name,
					.has_arg = !has_value ? no_argument : k->missing ? optional_argument : required_argument,
					.val = k->letter ? k->letter : LETTERLESS + (int)(k - set),
				};
			if (k->letter)
				*letters++ = k->letter;
			if (k->letter && has_value)
				*letters++ = ':';
		}
	longs[nr] = (struct option){ 0 };
	*letters = '\0';
}

static const struct conf_key *find_key(const struct command *c, int value)
{
	if (value >= LETTERLESS)
		return &c->options[value - LETTERLESS];
	for (const struct conf_key *k = c->options; k->name; k++)
		if (k->letter == value)
			return k;
	return NULL;
}

static const char *check_request(const struct command *c, void *request, int nr)
{
	if (nr < c->min_operands || nr > c->max_operands)
		return c->operands;
	return c->check ? c->check(request, nr) : NULL;
}

int command_parse(const struct command *c, void *request, int argc, char *argv[], int *ret_status)
{
	struct option longs[OPTIONS_MAX + 1];
	char letters[2 * OPTIONS_MAX + 3], refusal[COMMAND_REFUSAL_MAX];
	int value, r = conf_set_defaults(c->options, request);
	const char *why;

	*ret_status = r < 0 ? c->exit_failed : c->exit_usage;
	if (r < 0)
		return log_errno(r, "%s: options", c->name);
	build_tables(c, longs, letters);
	opterr = 0;
	while ((value = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		const struct conf_key *k = find_key(c, value);

		if (value == 'h' || value == 'V') {
			if (value == 'h')
				print_help(c, stdout);
			else
				printf("%s %s\n", c->name, CKPTFS_VERSION);
			*ret_status = 0;
			return 1;
		}
		if (!k) {
			command_refusal(value, letters, argv, refusal);
			text_printf(stderr, "%s: %s; try %s --help\n", c->name, refusal, c->name);
			return -EINVAL;
		}
		r = take_option(c, k, request, option_value(k, argc, argv));
		if (r < 0)
			return r;
	}
	why = check_request(c, request, argc - optind);
	if (why)
		text_printf(stderr, "%s: %s%s; try %s --help\n", c->name, why, why == c->operands ? " must be given" : "",
			    c->name);
	return why ? -EINVAL : 0;
}

int command_finish(const struct command *c, int status)
{
	bool earlier = ferror(stdout); /* then errno is of something else by now */
	bool is_written = fflush(stdout) == 0;

	if (is_written && !earlier)
		return status;
	/* Another write fails for the same cause. If not, it adds a line to an output that has a gap already. */
	if (is_written)
		errno = write(STDOUT_FILENO, "\n", 1) < 0 ? errno : 0;
	fprintf(stderr, "%s: cannot write standard output%s%s\n", c->name, errno ? ": " : "", errno ? strerror(errno) : "");
	return MAX(status, c->exit_failed);
}

int command_main(const struct command *c, void *request, int argc, char *argv[])
{
	int status;

	if (command_parse(c, request, argc, argv, &status) == 0)
		status = c->run(request, argv + optind, argc - optind);
	conf_release(c->options, request);
	return command_finish(c, status);
}
