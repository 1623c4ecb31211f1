/* What build.rs gives to bindgen: libfabric's public headers and the two that a provider needs.
 * Any libfabric from 1.17 to 2.x will do; what later releases appended to structures is written
 * by hand in provider/abi/compat.rs, so that one build serves every host. */
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
