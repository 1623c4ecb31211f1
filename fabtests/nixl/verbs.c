/* For a test of Mooncake's protocol `efa` on squall. Preloaded into Mooncake's transfer engine, this library shows it a verbs
 * device that does not exist, and answers its question to libfabric for the provider `efa` with the provider `squall`. The
 * engine itself is unchanged. Not for production: packaging/upstream/mooncake.patch needs no such library.
 *
 * The engine looks for the device in three places: ibverbs, /dev/infiniband and /sys/class/infiniband. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICES "/dev/infiniband/"
#define CLASS "/sys/class/infiniband/"

static struct ibv_device device = {
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.name = "rdmap0",
	.dev_name = "uverbs0",
};
static struct ibv_context context = { .device = &device };

struct ibv_device **ibv_get_device_list(int *count)
{
	static struct ibv_device *list[] = { &device, NULL };
	if (count)
		*count = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

const char *ibv_get_device_name(struct ibv_device *of)
{
	return of->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *of)
{
	(void)of;
	return &context;
}

int ibv_close_device(struct ibv_context *of)
{
	(void)of;
	return 0;
}

int ibv_query_device(struct ibv_context *of, struct ibv_device_attr *attributes)
{
	(void)of;
	memset(attributes, 0, sizeof *attributes);
	attributes->phys_port_cnt = 1;
	attributes->max_mr_size = 1ull << 40;
	return 0;
}

/* verbs.h has a macro of this name, for callers. */
#undef ibv_query_port
int ibv_query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	struct ibv_port_attr *known = (struct ibv_port_attr *)attributes;
	(void)of;
	(void)port;
	known->state = IBV_PORT_ACTIVE;
	known->gid_tbl_len = 1;
	return 0;
}

static int is_below(const char *path, const char *directory)
{
	return strncmp(path, directory, strlen(directory)) == 0;
}

/* Opens an existing file in place of the device file. */
static const char *existing(const char *path)
{
	return is_below(path, DEVICES) ? "/dev/null" : path;
}

int stat(const char *restrict path, struct stat *restrict found)
{
	return fstatat(AT_FDCWD, existing(path), found, 0);
}

int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, existing(path), mode, 0);
}

/* The directory of a device's PCI slot, from which the engine takes the nearest processors. */
static char *resolved(const char *path, char *to)
{
	char *(*next)(const char *, char *);
	if (is_below(path, CLASS) && to)
		return strcpy(to, "/sys/devices/pci0000:00/0000:00:00.0");
	*(void **)&next = dlvsym(RTLD_NEXT, "realpath", "GLIBC_2.3");
	return next(path, to);
}

char *realpath(const char *restrict path, char *restrict to)
{
	return resolved(path, to);
}

char *__realpath_chk(const char *path, char *to, size_t size)
{
	(void)size;
	return resolved(path, to);
}

typedef int getinfo(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
	       struct fi_info **found)
{
	static __thread int depth;
	void *libfabric = dlopen("libfabric.so.1", RTLD_NOW);
	struct fi_fabric_attr fabric;
	struct fi_domain_attr domain;
	struct fi_info asked;
	getinfo *next;
	int status;

	if (!libfabric)
		return -FI_ENOSYS;
	/* The engine is linked to the version FABRIC_1.3 of the symbol. Calls inside of libfabric need the newest one, which dlsym returns. */
	*(void **)&next = depth ? dlsym(libfabric, "fi_getinfo") : dlvsym(libfabric, "fi_getinfo", "FABRIC_1.3");
	if (!next)
		return -FI_ENOSYS;
	if (hints && hints->domain_attr && hints->fabric_attr && hints->fabric_attr->prov_name &&
	    !strcmp(hints->fabric_attr->prov_name, "efa")) {
		fabric = *hints->fabric_attr;
		fabric.prov_name = "squall";
		domain = *hints->domain_attr;
		/* The engine asks for the domain `rdmap0-rdm`, which `efa` would have. */
		domain.name = NULL;
		asked = *hints;
		asked.fabric_attr = &fabric;
		asked.domain_attr = &domain;
		hints = &asked;
	}
	depth++;
	status = next(version, node, service, flags, hints, found);
	depth--;
	return status;
}
