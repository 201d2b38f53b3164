#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/analyze_variables.h"

#define KEY_WIDTH 36

struct sums {
	uint64_t plain, coded, encode_ns, decode_ns;
};

static struct sums sum_up(const struct variables *v)
{
	struct sums s = { .encode_ns = v->trial_ns };

	for (size_t i = 0; i < v->nr; i++) {
		s.plain += v->variable[i]->plain;
		s.coded += v->variable[i]->coded;
		s.encode_ns += v->variable[i]->encode_ns;
		s.decode_ns += v->variable[i]->decode_ns;
	}
	return s;
}

static double ratio(uint64_t plain, uint64_t coded)
{
	return coded > 0 ? (double)plain / (double)coded : 1;
}

static double mb_per_s(uint64_t bytes, uint64_t ns)
{
	return ns > 0 ? (double)bytes * 1000 / (double)ns : 0;
}

static const char *shown_key(const struct variable *x)
{
	return strcmp(x->key, WHOLE_KEY) == 0 ? "(whole files)" : *x->key ? x->key : "(no variable)";
}

/* The coder that was used in the end: with a base, if there was ever one; without what repeats, if most of it was coded
 * so. */
static struct coder_spec coder_of(const struct variable *x)
{
	if (2 * x->matched > x->plain)
		return matching_chosen(&x->matching);
	return *coding_chosen(&x->coding[x->nr_based > 0]);
}

static void print_line(const char *name, const char *scheme, uint64_t plain, uint64_t coded, uint64_t in_ns,
		       uint64_t out_ns, const char *coder)
{
	json_print_cell(stdout, name, KEY_WIDTH); /* names are users' bytes */
	printf(" %10s", human_size(plain).s);
	printf(" %10s %7.3f %9.0f ", human_size(coded).s, ratio(plain, coded), mb_per_s(plain, in_ns));
	if (out_ns > 0)
		printf("%9.0f", mb_per_s(plain, out_ns));
	else
		printf("%9s", "");
	printf("  %-14s %s\n", scheme, coder);
}

void variables_text(const struct variables *v, const struct rival *rivals)
{
	struct sums s = sum_up(v);

	printf("\nVariables, merged over up to %u ranks, blocks of %s taking turns, against up to %u steps before, %g CPU s/GB:\n",
	       v->conf.group, human_size(v->conf.block).s, v->conf.chain, v->conf.budget);
	printf("%-*s %10s %10s %7s %9s %9s  %-14s %s\n", KEY_WIDTH, "", "bytes", "coded", "ratio", "in MB/s",
	       "out MB/s", "scheme", "coder");
	for (size_t i = 0; i < v->nr; i++) {
		const struct variable *x = v->variable[i];
		struct coder_spec spec = coder_of(x);
		char coder[CODE_NAME_MAX + 20];

		snprintf(coder, sizeof(coder), "%s%s", x->nr_rounded > 0 ? "base rounded, " : "",
			 code_name(&spec).s);
		print_line(shown_key(x), scheme_names[x->scheme], x->plain, x->coded, x->encode_ns, x->decode_ns, coder);
	}
	print_line("together", "", s.plain, s.coded, s.encode_ns, s.decode_ns, "");
	for (size_t i = 0; rivals && i < NR_RIVALS; i++)
		print_line(rivals[i].name, "", s.plain, rivals[i].coded, rivals[i].ns, 0, "all files as one stream");
	puts("On a mount ckptfs-compact does that, or compact=auto with what is sealed.");
	if (!v->complete)
		puts("Not everything could be read: the figures are of what was.");
}

static void print_variable(const struct variable *x)
{
	struct coder_spec spec = coder_of(x);

	fputs("{\"key\":", stdout);
	json_print_string(stdout, shown_key(x));
	printf(",\"type\":\"%s\",\"scheme\":\"%s\",\"coder\":\"%s\",\"plain_bytes\":%" PRIu64
	       ",\"coded_bytes\":%" PRIu64 ",\"ratio\":%.4f",
	       code_type_name(x->shape.type).s, scheme_names[x->scheme], code_name(&spec).s, x->plain, x->coded,
	       ratio(x->plain, x->coded));
	printf(",\"encode_ns\":%" PRIu64 ",\"decode_ns\":%" PRIu64 ",\"parts\":%" PRIu64 ",\"blocks\":%" PRIu64
	       ",\"based_blocks\":%" PRIu64 ",\"rounded_blocks\":%" PRIu64 "}",
	       x->encode_ns, x->decode_ns, x->nr_parts, x->nr_blocks, x->nr_based, x->nr_rounded);
}

void variables_json(const struct variables *v, const struct rival *rivals)
{
	struct sums s = sum_up(v);

	printf(",\n\"aware\":{\"scheme\":\"%s\",\"group\":%u,\"block_bytes\":%" PRIu64
	       ",\"chain\":%u,\"budget\":%g,\"complete\":%s,\"variables\":[",
	       scheme_names[v->conf.scheme], v->conf.group, v->conf.block, v->conf.chain, v->conf.budget,
	       v->complete ? "true" : "false");
	for (size_t i = 0; i < v->nr; i++) {
		fputs(i > 0 ? ",\n" : "\n", stdout);
		print_variable(v->variable[i]);
	}
	printf("],\n\"plain_bytes\":%" PRIu64 ",\"coded_bytes\":%" PRIu64 ",\"ratio\":%.4f,\"encode_ns\":%" PRIu64
	       ",\"decode_ns\":%" PRIu64,
	       s.plain, s.coded, ratio(s.plain, s.coded), s.encode_ns, s.decode_ns);
	if (rivals) {
		fputs(",\"rivals\":[", stdout);
		for (size_t i = 0; i < NR_RIVALS; i++)
			printf("%s{\"name\":\"%s\",\"coded_bytes\":%" PRIu64 ",\"encode_ns\":%" PRIu64 "}",
			       i > 0 ? "," : "", rivals[i].name, rivals[i].coded, rivals[i].ns);
		putchar(']');
	}
	putchar('}');
}
