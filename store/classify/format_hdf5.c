/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * HDF5 and netCDF-4: the library gets the file as an image in memory, and is asked for the type, the layout and the
 * address of each dataset. Their data is not read. Data changed by a filter is left alone, as are datasets stored in
 * object headers and in other files.
 */
#define H5_USE_18_API 1 /* the API that later versions offer under the same names */
#include <errno.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <string.h>

#include "base/util.h"
#include "store/classify/format_hdf5.h"

struct visit {
	struct typed *to;
	uint64_t user_block;
	int error;
};

void format_hdf5_prepare(void)
{
	H5open();
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static int set_float(struct typed_array *a, hid_t type, size_t size, bool big_endian)
{
	static const struct {
		size_t size, exponent_at, exponent, mantissa;
		char kind;
	} known[] = { { 2, 10, 5, 10, 'f' }, { 2, 7, 8, 7, 'B' }, { 4, 23, 8, 23, 'f' }, { 8, 52, 11, 52, 'f' } };
	size_t sign_at, exponent_at, exponent, mantissa_at, mantissa;

	if (H5Tget_fields(type, &sign_at, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0)
		return -EBADMSG;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (known[i].size == size && sign_at == 8 * size - 1 && known[i].exponent_at == exponent_at &&
		    known[i].exponent == exponent && mantissa_at == 0 && known[i].mantissa == mantissa)
			return typed_array_set_type(a, known[i].kind, size, big_endian);
	return -EOPNOTSUPP;
}

static int set_type(struct typed_array *a, hid_t type, unsigned depth);

/* A compound of two adjacent floats of the same type: a complex number. */
static int set_complex(struct typed_array *a, hid_t type)
{
	hid_t one = H5Tget_member_type(type, 0), two = H5Tget_member_type(type, 1);
	size_t size = one >= 0 ? H5Tget_size(one) : 0;
	int r = -EOPNOTSUPP;

	if (H5Tget_nmembers(type) == 2 && size > 0 && H5Tget_class(one) == H5T_FLOAT && H5Tequal(one, two) > 0 &&
	    H5Tget_member_offset(type, 0) == 0 && H5Tget_member_offset(type, 1) == size && H5Tget_size(type) == 2 * size)
		r = set_type(a, one, 1);
	if (r == 0)
		a->parts = 2;
	H5Tclose(one);
	H5Tclose(two);
	return r;
}

static int set_type(struct typed_array *a, hid_t type, unsigned depth)
{
	size_t size = H5Tget_size(type);
	bool big_endian = H5Tget_order(type) == H5T_ORDER_BE;
	hid_t super;
	int r;

	switch (H5Tget_class(type)) {
	case H5T_INTEGER:
		if (H5Tget_precision(type) != 8 * size)
			return -EOPNOTSUPP;
		return typed_array_set_type(a, H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i', size, big_endian);
	case H5T_FLOAT:
		return set_float(a, type, size, big_endian);
	case H5T_ENUM: /* such as bool */
		super = H5Tget_super(type);
		r = depth == 0 ? set_type(a, super, 1) : -EOPNOTSUPP;
		H5Tclose(super);
		return r;
	case H5T_COMPOUND:
		return depth == 0 ? set_complex(a, type) : -EOPNOTSUPP;
	default:
		return -EOPNOTSUPP;
	}
}

static int set_shape(struct typed_array *a, hid_t set)
{
	hid_t space = H5Dget_space(set);
	hsize_t dim[H5S_MAX_RANK];
	int nr = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;

	if (nr > 0)
		nr = H5Sget_simple_extent_dims(space, dim, NULL);
	if (space >= 0)
		H5Sclose(space);
	if (nr < 0 || nr > TYPED_DIMS_MAX)
		return -EBADMSG;
	a->nr_dims = (unsigned)nr;
	for (int i = 0; i < nr; i++)
		a->dim[i] = dim[i];
	return 0;
}

static int add_contiguous(struct visit *v, hid_t set, hid_t list, const char *name, const struct typed_array *a)
{
	haddr_t at = H5Dget_offset(set);

	if (H5Pget_external_count(list) != 0 || at == HADDR_UNDEF || H5Dget_storage_size(set) == 0)
		return 0; /* its bytes are in other files, or not allocated yet */
	return typed_add_array(v->to, name, strlen(name), a, at, H5Dget_storage_size(set));
}

/* Add the chunks one by one, last coordinate fastest. Chunks that were never written are not in the file. */
static int add_chunks(struct visit *v, hid_t set, const struct typed_array *whole, const hsize_t *chunk)
{
	hsize_t at[H5S_MAX_RANK] = { 0 }, size;
	struct typed_array one = *whole;
	uint64_t bytes, nr = 0;
	unsigned filtered;
	haddr_t addr;
	int r;

	for (unsigned i = 0; i < one.nr_dims; i++)
		one.dim[i] = chunk[i];
	if (typed_array_bytes(&one, &bytes) < 0)
		return -EBADMSG;
	for (;;) {
		int i = (int)whole->nr_dims - 1;

		if (++nr > TYPED_EXTENTS_MAX)
			return -E2BIG;
		if (H5Dget_chunk_info_by_coord(set, at, &filtered, &addr, &size) < 0)
			return -EBADMSG;
		if (addr != HADDR_UNDEF && size > 0) {
			if (size != bytes)
				return -EBADMSG;
			r = typed_add_extent(v->to, addr, size);
			if (r < 0)
				return r;
		}
		while (i >= 0 && (at[i] += chunk[i]) >= whole->dim[i])
			at[i--] = 0;
		if (i < 0)
			return 0;
	}
}

static int add_chunked(struct visit *v, hid_t set, hid_t list, const char *name, const struct typed_array *a)
{
	struct typed_array one = *a;
	hsize_t chunk[H5S_MAX_RANK];
	int r;

	/* Versions of the library differ in whether the address of a chunk includes the user block. */
	if (H5Pget_nfilters(list) != 0 || v->user_block > 0)
		return 0;
	if (H5Pget_chunk(list, H5S_MAX_RANK, chunk) != (int)a->nr_dims || a->nr_dims == 0)
		return -EBADMSG;
	for (unsigned i = 0; i < a->nr_dims; i++) {
		if (chunk[i] == 0)
			return -EBADMSG;
		if (a->dim[i] == 0)
			return 0;
		one.dim[i] = chunk[i]; /* strides are those of a chunk */
	}
	r = typed_add_variable(v->to, name, strlen(name), &one);
	return r > 0 ? add_chunks(v, set, a, chunk) : r;
}

static int add_dataset(struct visit *v, hid_t set, hid_t type, hid_t list, const char *name)
{
	struct typed_array a = { 0 };
	int r;

	r = set_type(&a, type, 0);
	if (r == -EOPNOTSUPP)
		return 0;
	if (r == 0)
		r = set_shape(&a, set);
	if (r < 0)
		return r;
	switch (H5Pget_layout(list)) {
	case H5D_CONTIGUOUS:
		return add_contiguous(v, set, list, name, &a);
	case H5D_CHUNKED:
		return add_chunked(v, set, list, name, &a);
	case H5D_LAYOUT_ERROR:
		return -EBADMSG;
	default:
		return 0;
	}
}

static herr_t visit_object(hid_t root, const char *name, const H5O_info_t *info, void *userdata)
{
	struct visit *v = userdata;
	hid_t set, type, list;

	if (info->type != H5O_TYPE_DATASET)
		return 0;
	v->error = -EBADMSG;
	set = H5Dopen2(root, name, H5P_DEFAULT);
	if (set < 0)
		return -1;
	type = H5Dget_type(set);
	list = H5Dget_create_plist(set);
	if (type >= 0 && list >= 0)
		v->error = add_dataset(v, set, type, list, name);
	H5Tclose(type);
	H5Pclose(list);
	H5Dclose(set);
	return v->error < 0 ? -1 : 0;
}

int format_hdf5(const uint8_t *p, uint64_t len, struct typed *ret)
{
	struct visit v = { .to = ret };
	hsize_t user_block = 0;
	hid_t file, list;
	herr_t r;

	if (!format_hdf5_is(p, len))
		return 0;
	/* Read-only and not copied: the library does not modify the image. */
	file = H5LTopen_file_image((void *)p, (size_t)len, H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
	if (file < 0)
		return -EBADMSG;
	list = H5Fget_create_plist(file);
	r = list >= 0 ? H5Pget_userblock(list, &user_block) : -1;
	v.user_block = user_block;
	if (r >= 0)
		r = H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, visit_object, &v);
	H5Pclose(list);
	H5Fclose(file);
	if (v.error < 0 || r < 0)
		return v.error < 0 ? v.error : -EBADMSG;
	r = typed_check(ret);
	return r < 0 ? r : 1;
}
