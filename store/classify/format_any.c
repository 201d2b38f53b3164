/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/formats.h"

int format_any(const uint8_t *p, uint64_t len, struct typed *ret)
{
	static int (*const formats[])(const uint8_t *, uint64_t, struct typed *) = {
		format_netcdf, format_npy, format_zip, format_safetensors, format_core, format_dmtcp
	};

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		int r = formats[i](p, len, ret);

		if (r < 0)
			return r;
		if (r > 0) {
			r = typed_check(ret);
			return r < 0 ? r : 1;
		}
	}
	return 0;
}
