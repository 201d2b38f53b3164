/*
 * What data-aware storage would make of files: every variable of all ranks merged, coded in the way that pays, against
 * the step before. Everything that is coded is decoded again and compared. Memory does not depend on the size of files.
 */
#pragma once

#include "store/code/coding.h"
#include "store/code/matching.h"
#include "tools/analyze_files.h"

/* How checkpoints are merged before they are coded. AUTO: for each variable what makes it the smallest; or files as a
 * whole, if that is smaller than all of their variables. */
enum scheme { SCHEME_AUTO, SCHEME_AGNOSTIC, SCHEME_AGNOSTIC_BLOCK, SCHEME_AWARE, SCHEME_AWARE_BLOCK, NR_SCHEMES };
extern const char *const scheme_names[NR_SCHEMES];

struct stream;
struct set;

struct variables_conf {
	enum scheme scheme;
	unsigned group; /* ranks that are merged */
	uint64_t block; /* bytes that take turns */
	bool no_twins; /* do not look for variables that are others, rounded */
	unsigned chain; /* steps that are coded one against the other; 0: each for itself */
	double budget; /* CPU seconds per GB */
	const char *helper; /* ckptfs-classify */
	const char *names; /* as in classify.h */

	bool (*step)(void *userdata, uint64_t bytes); /* as in analyze.h */
	void *userdata;
};

#define WHOLE_KEY "\1" /* of whole files: keys of variables end with type and class */

struct variable {
	char *key; /* "": what no variable has */
	struct coding_shape shape;
	enum scheme scheme; /* AUTO: not chosen yet */
	bool coding_ready[2];
	struct coding coding[2]; /* without a base, and with one */
	struct matching matching; /* without a base, and without what repeats; made with coding[0] */

	uint64_t plain, coded, encode_ns, decode_ns;
	uint64_t matched; /* plain bytes of frames without what repeats in them */
	uint64_t nr_parts, nr_blocks, nr_based; /* blocks with a base */
	uint64_t nr_rounded; /* of these, blocks whose base is another variable, rounded */
};

struct variables {
	struct variables_conf conf;
	struct code_work *work;
	/* wide: what the base is rounded from. Frames fit into all but base and wide */
	uint8_t *plain, *base, *wide, *block, *decoded;
	struct match_out *match_out;
	struct variable **variable; /* by key, once variables_run() is done */
	size_t nr, room;
	uint64_t looked_at, trial_ns; /* CPU time to find out whether whole files are smaller */
	bool complete;
};

int variables_init(struct variables *v, const struct variables_conf *conf);
void variables_release(struct variables *v);
/* All files, which have been arranged. A file that cannot be read is left out, and `complete` false. -ENOMEM and
 * others, after a complaint. */
int variables_run(struct variables *v, struct files *files);

/* Are the files of a set smaller as a whole than all of their variables, each step by itself? Found out with some of
 * them. -ENOMEM and others. */
int variables_choose_whole(const struct variables_conf *conf, const struct set *set, bool *ret);

/* What general compressors make of all files one behind the other. */
struct rival {
	const char *name;
	uint64_t coded, ns;
};
#define NR_RIVALS 3
/* -ENOMEM, or another after a complaint; what cannot be read is left out. `step` as above. */
int rivals_run(const struct files *files, bool (*step)(void *, uint64_t), void *userdata, struct rival ret[NR_RIVALS]);

/* analyze_frames.c: codes a stream without a base, frame by frame, each without what repeats in it if that pays. As
 * code_stream(), counted. */
int code_frames(struct variables *v, struct variable *x, struct stream *now);
/* analyze_variables.c: one block by itself, and what comes of it; counted if it is to be. Its bytes; <0 */
int code_alone(struct variables *v, struct variable *x, const uint8_t *p, size_t len, bool count);
/* So many bytes more are done: 0, or -EINTR. */
int variables_step(struct variables *v, uint64_t bytes);

void variables_text(const struct variables *v, const struct rival *rivals); /* rivals: NULL if there are none */
void variables_json(const struct variables *v, const struct rival *rivals);
