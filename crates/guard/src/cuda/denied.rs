//! What is not offered: ways by which memory would live without being charged, old forms nobody calls any more, and
//! the answers of names that have nothing behind them.

use super::abi::{Code, GRAPH_NODE_MEM_ALLOC, Handle, INVALID_VALUE, NO_DEVICE, NOT_FOUND, NOT_SUPPORTED};
use super::real;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    // Exported memory lives on in whoever holds the file, and nobody can tell how much an import brings.
    Hook("cuMemExportToShareableHandle", refuse as Entry),
    Hook("cuMemImportFromShareableHandle", refuse as Entry),
    Hook("cuMemPoolExportToShareableHandle", refuse as Entry),
    Hook("cuMemPoolImportFromShareableHandle", refuse as Entry),
    Hook("cuMemPoolExportPointer", refuse as Entry),
    Hook("cuMemPoolImportPointer", refuse as Entry),
    Hook("cuLogicalEndpointImport", refuse as Entry),
    // Memory mapped into sparse arrays outlives its handle.
    Hook("cuMemMapArrayAsync", refuse as Entry),
    Hook("cuMemMapArrayAsync_ptsz", refuse as Entry),
    // Memory that a graph takes when it is launched.
    Hook("cuGraphAddMemAllocNode", refuse as Entry),
    Hook("cuGraphAddNode", add_node as Entry),
    Hook("cuGraphAddNode_v2", add_node_2 as Entry),
    Hook("cuGraphAddNode_v3", add_node_3 as Entry),
    // Bound memory outlives its handle; for whole devices anyway.
    Hook("cuMulticastCreate", refuse as Entry),
    // The forms of CUDA 3.1 and before, with sizes of 32 bits.
    Hook("cuMemAlloc", refuse as Entry),
    Hook("cuMemAllocPitch", refuse as Entry),
    Hook("cuMemFree", refuse as Entry),
    Hook("cuMemGetInfo", refuse as Entry),
    Hook("cuDeviceTotalMem", refuse as Entry),
    Hook("cuArrayCreate", refuse as Entry),
    Hook("cuArray3DCreate", refuse as Entry),
    Hook("cuLaunch", refuse as Entry),
    Hook("cuLaunchGrid", refuse as Entry),
    Hook("cuLaunchGridAsync", refuse as Entry),
    Hook("cuLaunchCooperativeKernelMultiDevice", refuse as Entry),
    Hook("cuCtxAttach", refuse as Entry),
    Hook("cuCtxDetach", refuse as Entry),
    Hook("cuGLCtxCreate", refuse as Entry),
    Hook("cuGLCtxCreate_v2", refuse as Entry),
    Hook("cuVDPAUCtxCreate", refuse as Entry),
    Hook("cuVDPAUCtxCreate_v2", refuse as Entry),
];

pub extern "C" fn refuse() -> Code {
    NOT_SUPPORTED
}

/// The driver has no function of this name.
pub extern "C" fn missing() -> Code {
    NOT_FOUND
}

/// There is no driver.
pub extern "C" fn no_device() -> Code {
    NO_DEVICE
}

/// The kind of node its parameters ask for.
///
/// # Safety
/// `parameters` is null or points to `CUgraphNodeParams`.
unsafe fn allocates(parameters: *const u32) -> bool {
    // SAFETY: as promised; the kind is the first member.
    !parameters.is_null() && unsafe { *parameters } == GRAPH_NODE_MEM_ALLOC
}

unsafe extern "C" fn add_node(
    node: *mut Handle,
    graph: Handle,
    after: *const Handle,
    count: usize,
    parameters: *const u32,
) -> Code {
    type Next = unsafe extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const u32) -> Code;
    guarded!(INVALID_VALUE, {
        let next: Next = real!("cuGraphAddNode");
        // SAFETY: the caller's own arguments.
        unsafe {
            match allocates(parameters) {
                true => NOT_SUPPORTED,
                false => next(node, graph, after, count, parameters),
            }
        }
    })
}

type NextWithEdges =
    unsafe extern "C" fn(*mut Handle, Handle, *const Handle, Handle, usize, *const u32) -> Code;

/// One hook for each later form, which differ in what they say of edges.
macro_rules! with_edges {
    ($($function:ident $name:literal;)*) => {$(
        unsafe extern "C" fn $function(
            node: *mut Handle,
            graph: Handle,
            after: *const Handle,
            edges: Handle,
            count: usize,
            parameters: *const u32,
        ) -> Code {
            guarded!(INVALID_VALUE, {
                let next: NextWithEdges = real!($name);
                // SAFETY: the caller's own arguments.
                unsafe {
                    match allocates(parameters) {
                        true => NOT_SUPPORTED,
                        false => next(node, graph, after, edges, count, parameters),
                    }
                }
            })
        }
    )*};
}

with_edges! {
    add_node_2 "cuGraphAddNode_v2";
    add_node_3 "cuGraphAddNode_v3";
}
