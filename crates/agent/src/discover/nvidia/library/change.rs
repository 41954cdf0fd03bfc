//! What NVML changes: GPU instances and the compute instance inside each, and memory limits of cgroups.
//!
//! Layouts are those of `nvml.h`. Only a child process of `driver.rs` calls these.

use std::ffi::{CString, c_char, c_uint, c_ulonglong};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Answer, Failure, Handle, Instance, InstancePlacement, LIST_MAX, Nvml};

/// `NVML_DEVICE_MEMORY_LIMIT_MAX`
const NO_LIMIT: c_ulonglong = c_ulonglong::MAX;
/// `NVML_COMPUTE_INSTANCE_PROFILE_COUNT` grows with the library; what it does not know it refuses.
const KINDS_MAX: c_uint = 16;
/// `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`
const SHARED_ENGINES: c_uint = 0;

/// `nvmlComputeInstanceProfileInfo_t`
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ComputeProfile {
    id: c_uint,
    slice_count: c_uint,
    instance_count: c_uint,
    multiprocessor_count: c_uint,
    shared_copy_engine_count: c_uint,
    shared_decoder_count: c_uint,
    shared_encoder_count: c_uint,
    shared_jpeg_count: c_uint,
    shared_ofa_count: c_uint,
}

/// `nvmlSetMemoryLimits_v1_t`
#[repr(C)]
pub(super) struct MemoryLimits {
    name_space: *const c_char,
    soft_limit: c_ulonglong,
    hard_limit: c_ulonglong,
}

const _: () = assert!(size_of::<ComputeProfile>() == 36 && size_of::<MemoryLimits>() == 24);

impl Nvml {
    pub fn by_uuid(&self, uuid: &str) -> Answer<Handle> {
        let uuid = CString::new(uuid).map_err(|_| Failure::INVALID_ARGUMENT)?;
        let mut handle = std::ptr::null_mut();
        call!(self.by_uuid(uuid.as_ptr(), &mut handle))?;
        Ok(handle)
    }

    /// Every GPU instance of the device, whoever made it.
    pub fn all_instances(&self, of: Handle) -> Answer<Vec<Instance>> {
        let mut all = Vec::new();
        for profile in self.profiles(of) {
            let found = self.instances(of, profile.id)?;
            all.extend(found.into_iter().filter(|one| one.profile_id == profile.id));
        }
        Ok(all)
    }

    /// Makes a GPU instance at this place and nowhere else.
    pub fn create_instance(&self, of: Handle, profile: u32, place: InstancePlacement) -> Answer<Handle> {
        let mut handle = std::ptr::null_mut();
        call!(self.create_instance(of, profile, &place, &mut handle))?;
        Ok(handle)
    }

    pub fn instance_by_id(&self, of: Handle, id: u32) -> Answer<Handle> {
        let mut handle = std::ptr::null_mut();
        call!(self.instance_by_id(of, id, &mut handle))?;
        Ok(handle)
    }

    fn compute_profiles(&self, instance: Handle) -> Vec<ComputeProfile> {
        let ask = |kind| {
            let mut info = ComputeProfile::default();
            call!(self.compute_profile(instance, kind, SHARED_ENGINES, &mut info)).ok()?;
            Some(info)
        };
        (0..KINDS_MAX).filter_map(ask).collect()
    }

    /// Makes the compute instance that has all of its GPU instance.
    pub fn create_compute(&self, instance: Handle) -> Answer<()> {
        let profiles = self.compute_profiles(instance);
        let whole = profiles.iter().max_by_key(|profile| profile.slice_count);
        let id = whole.ok_or(Failure::NOT_SUPPORTED)?.id;
        let mut handle = std::ptr::null_mut();
        call!(self.create_compute(instance, id, &mut handle))
    }

    /// Destroys a GPU instance and what is in it. Fails while a program uses it.
    pub fn destroy(&self, instance: Handle) -> Answer<()> {
        for profile in self.compute_profiles(instance) {
            let mut list = [std::ptr::null_mut(); LIST_MAX as usize];
            let mut count = LIST_MAX;
            call!(self.compute_instances(instance, profile.id, list.as_mut_ptr(), &mut count))?;
            if count > LIST_MAX {
                return Err(Failure::INSUFFICIENT_SIZE);
            }
            for &compute in &list[..count as usize] {
                call!(self.destroy_compute(compute))?;
            }
        }
        call!(self.destroy_instance(instance))
    }

    /// The compute instance a MIG device is.
    pub fn compute_id(&self, of: Handle) -> Answer<u32> {
        self.number(|id| call!(self.compute_id(of, id)))
    }

    /// Whether the library knows memory limits of cgroups: r615 and later do.
    pub fn has_memory_limits(&self) -> bool {
        self.functions.set_memory_limits.is_some()
    }

    /// Limits what the programs of a cgroup may have of the device's memory, in bytes; none lifts the limit.
    pub fn limit_memory(&self, of: Handle, cgroup: &Path, bytes: Option<u64>) -> Answer<()> {
        let path = CString::new(cgroup.as_os_str().as_bytes()).map_err(|_| Failure::INVALID_ARGUMENT)?;
        let mut limits = MemoryLimits {
            name_space: path.as_ptr(),
            // Nothing is promised beyond the limit itself: promises add up along the tree of cgroups.
            soft_limit: 0,
            hard_limit: bytes.unwrap_or(NO_LIMIT),
        };
        call!(self.set_memory_limits(of, &mut limits))
    }
}
