/* The buffers that carry written data; engine.h has the functions for callers of the store. */
#pragma once

struct engine;
struct engine_buffer;

int buffers_init(struct engine *e);
void buffers_release(struct engine *e);
int buffer_try(struct engine *e, struct engine_buffer **ret); /* 1: got one, 0: all in use, -ENOMEM */
