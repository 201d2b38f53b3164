/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Files whose bytes are in a tier alone: content_send_away() in store/engine.h. */
#pragma once

struct engine;

int away_find(struct engine *e); /* has the store such files? At the end of recovery */
