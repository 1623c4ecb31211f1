/* Hosts of their own for processes that a test forks: the network namespaces that SQUALL_TEST_HOSTS names, a path for each process,
 * commas between them (ci/squall_ci/hosts.py makes them). C, with _GNU_SOURCE, and C++. */
#ifndef SQUALL_HOSTS_H
#define SQUALL_HOSTS_H

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

/* Puts the calling process, which has one thread, onto the host of this number, with the sysfs of that host's interfaces. Without
 * SQUALL_TEST_HOSTS it stays where it is; what cannot be done ends it with a word. */
static inline void enter_host(int number)
{
	const char *paths = getenv("SQUALL_TEST_HOSTS"), *at = paths;
	char path[4096];
	int fd;

	if (!paths)
		return;
	for (int before = 0; before < number && at; before++)
		at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	if (!at) {
		fprintf(stderr, "SQUALL_TEST_HOSTS=%s: there is no host %d\n", paths, number);
		exit(1);
	}
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(at, ","), at);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	/* A sysfs shows the interfaces of whoever mounted it; no other process is to see this one. */
	if (fd < 0 || setns(fd, CLONE_NEWNET) || unshare(CLONE_NEWNS) || mount("", "/", "none", MS_SLAVE | MS_REC, NULL) ||
	    umount2("/sys", MNT_DETACH) || mount("sysfs", "/sys", "sysfs", 0, NULL)) {
		perror(path);
		exit(1);
	}
	close(fd);
}

#endif
