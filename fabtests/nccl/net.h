/* The network interface of NCCL's plugins, version 9, as NVIDIA publishes it (nccl, ext-net): what a plugin exports as
 * `ncclNetPlugin_v9`. Results are 0 for success. */
#ifndef SQUALL_NCCL_NET_H
#define SQUALL_NCCL_NET_H

#include <stddef.h>
#include <stdint.h>

enum { NCCL_NET_HANDLE_MAXSIZE = 128, NCCL_NET_MAX_REQUESTS = 32 };
enum { NCCL_PTR_HOST = 1, NCCL_PTR_CUDA = 2, NCCL_PTR_DMABUF = 4 };
enum { NCCL_LOG_WARN = 2, NCCL_LOG_INFO = 3 };
/* What the request of a receive is preset to whose completion may come before its bytes. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION ((void *)1)

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct nccl_virtual {
	int ndevs;
	int devs[4];
};

struct nccl_properties {
	char *name;
	char *pci_path;
	uint64_t guid;
	/* NCCL_PTR_* */
	int ptr_support;
	int reg_is_global;
	int force_flush;
	/* Mb/s */
	int speed;
	int port;
	float latency;
	int max_comms;
	/* Receives that one request may group. */
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_virtual virtual;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};

struct nccl_net {
	const char *name;
	int (*init)(nccl_logger);
	int (*devices)(int *count);
	int (*get_properties)(int device, struct nccl_properties *);
	int (*listen)(int device, void *handle, void **listen_comm);
	/* Connecting and accepting are to be repeated until there is a communicator. */
	int (*connect)(int device, void *handle, void **send_comm, void **offload);
	int (*accept)(void *listen_comm, void **recv_comm, void **offload);
	int (*reg_mr)(void *comm, void *data, size_t len, int type, void **mr);
	int (*reg_mr_dma_buf)(void *comm, void *data, size_t len, int type, uint64_t offset, int fd, void **mr);
	int (*dereg_mr)(void *comm, void *mr);
	/* No request: to be repeated. */
	int (*isend)(void *send_comm, void *data, size_t len, int tag, void *mr, void **request);
	int (*irecv)(void *recv_comm, int count, void **data, size_t *lens, int *tags, void **mrs, void **request);
	/* No request: nothing to wait for. */
	int (*iflush)(void *recv_comm, int count, void **data, int *lens, void **mrs, void **request);
	int (*test)(void *request, int *done, int *lens);
	int (*close_send)(void *send_comm);
	int (*close_recv)(void *recv_comm);
	int (*close_listen)(void *listen_comm);
	int (*get_device_mr)(void *comm, void *mr, void **out);
	int (*irecv_consumed)(void *recv_comm, int count, void *request);
	int (*make_vdevice)(int *device, struct nccl_virtual *);
};

#endif
