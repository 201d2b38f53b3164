/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Memory maps: what read, write and the maps of a file see of each other; running programs from the mount. */
#include "posix.h"

#include <linux/falloc.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, SIZE = 64 * PAGE };

static uint8_t model[SIZE];

static int make_model(void)
{
	fill(model, SIZE, 20);
	return make_file("f", model, SIZE);
}

static uint8_t *map(int fd, int prot)
{
	long page = sysconf(_SC_PAGESIZE);

	if (page > SIZE)
		check_skip("pages of %ld bytes", page);
	return POINTER(mmap(NULL, SIZE, prot, MAP_SHARED, fd, 0));
}

CHECK(mmap_shared_reads_the_file)
{
	uint8_t *p = map(make_model(), PROT_READ);

	TRUE(memcmp(p, model, SIZE) == 0);
}

CHECK(mmap_write_is_seen_by_read)
{
	int fd = make_model(), other = OK(open("f", O_RDONLY));
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);

	memcpy(p + 5000, "by map", 6);
	memcpy(model + 5000, "by map", 6);
	expect_content(fd, model, SIZE);
	expect_content(other, model, SIZE);
	OK(msync(p, SIZE, MS_SYNC));
	expect_content(other, model, SIZE);
}

CHECK(write_is_seen_by_mmap)
{
	int fd = make_model(), w;
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);

	TRUE(memcmp(p, model, SIZE) == 0);
	EQUAL(pwrite(fd, "by write", 8, 9000), 8);
	TRUE(memcmp(p + 9000, "by write", 8) == 0);
	w = OK(open("f", O_WRONLY));
	EQUAL(pwrite(w, "write-only", 10, 4090), 10);
	TRUE(memcmp(p + 4090, "write-only", 10) == 0);
	p[20000] = 0xaa;
	EQUAL(pwrite(w, "beside", 6, 20001), 6); /* same page, dirty by the map */
	OK(msync(p, SIZE, MS_SYNC));
	memcpy(model + 9000, "by write", 8);
	memcpy(model + 4090, "write-only", 10);
	model[20000] = 0xaa;
	memcpy(model + 20001, "beside", 6);
	expect_content(fd, model, SIZE);
}

CHECK(mmap_write_survives_unmap_and_reopen)
{
	int fd = make_model();
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);

	OK(close(fd)); /* the map goes on */
	fill(p + PAGE, 3 * PAGE, 21);
	fill(model + PAGE, 3 * PAGE, 21);
	OK(munmap(p, SIZE));
	fd = OK(open("f", O_RDONLY));
	expect_content(fd, model, SIZE);
	OK(fsync(fd));
}

CHECK(mmap_of_two_processes_is_one_memory)
{
	int fd = make_model();
	volatile uint8_t *p = map(fd, PROT_READ | PROT_WRITE);
	pid_t pid = check_fork();
	int i;

	if (pid == 0) {
		volatile uint8_t *q = map(OK(open("f", O_RDWR)), PROT_READ | PROT_WRITE);

		for (i = 1; i < 100; i++) {
			while (q[0] != i)
				usleep(10);
			q[PAGE] = i;
		}
		_exit(0);
	}
	p[0] = p[PAGE] = 0;
	for (i = 1; i < 100; i++) {
		p[0] = i;
		while (p[PAGE] != i)
			usleep(10);
	}
	check_join(pid);
}

CHECK(mmap_private_stays_private)
{
	int fd = make_model();
	uint8_t *p = POINTER(mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));

	memset(p, 1, SIZE);
	OK(msync(p, SIZE, MS_SYNC));
	expect_content(fd, model, SIZE);
}

CHECK(mmap_tail_of_last_page_is_zero_and_not_kept)
{
	int fd = make_model();
	uint8_t *p;
	int i;

	OK(ftruncate(fd, 5000));
	p = map(fd, PROT_READ | PROT_WRITE);
	for (i = 5000; i < 8192; i++)
		EQUAL(p[i], 0);
	memset(p + 5000, 'x', 100);
	OK(msync(p, 8192, MS_SYNC));
	OK(munmap(p, SIZE));
	OK(ftruncate(fd, 8192));
	expect_zeros(fd, 5000, 8192 - 5000);
}

CHECK(mmap_sees_truncate_and_punch)
{
	int fd = make_model();
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);
	int i;

	memset(p + 40000, 'd', 1000);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40000, 20000));
	for (i = 40000; i < 60000; i++)
		EQUAL(p[i], 0);
	OK(ftruncate(fd, 10000));
	OK(ftruncate(fd, SIZE));
	EQUAL(p[9999], model[9999]);
	for (i = 10000; i < SIZE; i += 97)
		EQUAL(p[i], 0);
}

CHECK(mmap_sees_copy_file_range)
{
	static uint8_t other[SIZE];
	int fd = make_model(), from;
	off_t a = 0, b = PAGE;
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);

	fill(other, SIZE, 22);
	from = make_file("g", other, SIZE);
	p[PAGE] = 1; /* dirty where the copy goes */
	p[0] = 2;    /* and beside it */
	EQUAL(copy_file_range(from, &a, fd, &b, PAGE, 0), PAGE);
	TRUE(memcmp(p + PAGE, other, PAGE) == 0);
	EQUAL(p[0], 2);
	a = 0, b = 0;
	EQUAL(copy_file_range(fd, &a, from, &b, PAGE, 0), PAGE); /* takes along what only the map has changed */
	model[0] = 2;
	memcpy(other, model, PAGE);
	expect_content(from, other, SIZE);
}

static sigjmp_buf on_bus;

static void bus(int sig)
{
	(void)sig;
	siglongjmp(on_bus, 1);
}

CHECK(mmap_past_the_end_is_sigbus)
{
	int fd = make_model();
	uint8_t *p = map(fd, PROT_READ);

	OK(ftruncate(fd, 100));
	signal(SIGBUS, bus);
	if (sigsetjmp(on_bus, 1) == 0)
		check_fail(__LINE__, "reads %d past the end", ((volatile uint8_t *)p)[SIZE - 1]);
}

CHECK(mmap_needs_the_right_open_mode)
{
	int r, w;

	OK(close(make_model()));
	r = OK(open("f", O_RDONLY));
	w = OK(open("f", O_WRONLY));
	TRUE(mmap(NULL, SIZE, PROT_WRITE, MAP_SHARED, r, 0) == MAP_FAILED && errno == EACCES);
	TRUE(mmap(NULL, SIZE, PROT_READ, MAP_SHARED, w, 0) == MAP_FAILED && errno == EACCES);
}

CHECK(mmap_write_is_data_to_seek)
{
	int fd = OK(open("f", O_RDWR | O_CREAT, 0644)), other;
	uint8_t *p;

	OK(ftruncate(fd, SIZE));
	p = map(fd, PROT_READ | PROT_WRITE);
	memcpy(p + 20 * PAGE, "by map", 6);
	other = OK(open("f", O_RDONLY));
	TRUE(OK(lseek(other, 0, SEEK_DATA)) <= 20 * PAGE);
	TRUE(OK(lseek(other, 20 * PAGE, SEEK_HOLE)) >= 20 * PAGE + 6);
}

CHECK(mmap_write_moves_mtime)
{
	int fd = make_model();
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);
	int64_t t = mtime_ns("f");

	nap(20);
	p[0] ^= 1;
	OK(msync(p, SIZE, MS_SYNC));
	TRUE(mtime_ns("f") > t);
}

CHECK(mmap_of_unlinked_file)
{
	int fd = make_model();
	uint8_t *p = map(fd, PROT_READ | PROT_WRITE);

	OK(unlink("f"));
	OK(close(fd));
	p[100] = 7;
	OK(msync(p, SIZE, MS_SYNC));
	EQUAL(p[100], 7);
	EQUAL(p[SIZE - 1], model[SIZE - 1]);
}

CHECK(programs_run_from_the_mount)
{
	static uint8_t buf[1 << 20];
	int from = OK(open("/bin/sleep", O_RDONLY)), to = OK(open("prog", O_WRONLY | O_CREAT, 0755));
	ssize_t n;
	pid_t pid;

	while ((n = OK(read(from, buf, sizeof(buf)))) > 0)
		EQUAL(write(to, buf, n), n);
	OK(close(to));
	pid = OK(fork());
	if (pid == 0) {
		execl("./prog", "prog", "1", NULL);
		_exit(127);
	}
	nap(300);
	FAILS(ETXTBSY, open("prog", O_WRONLY));
	check_join(pid);
	OK(open("prog", O_WRONLY));
}
