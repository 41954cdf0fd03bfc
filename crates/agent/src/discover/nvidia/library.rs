//! NVML by hand: the functions that the agent needs, each looked up when the library is loaded. Those that change
//! something are in `change`, those that measure in `measure`.
//!
//! Types and numbers are those of `nvml.h`. The functions with a version in their name keep their layout for ever;
//! the newest used are `nvmlDeviceGetGpuInstancePossiblePlacements_v2` and `nvmlDeviceGetGpuInstanceProfileInfoV`
//! (NVML 11.5 and 11.6). An older library lacks some: those answer `FUNCTION_NOT_FOUND`, as NVML itself would. Counts
//! and texts that come back are never trusted beyond the room that was given.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::path::Path;

use libloading::Library;

use super::super::pci::PciAddress;
use super::super::printable;

pub type Handle = *mut c_void;
type Status = i32;

/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE` and `NVML_DEVICE_UUID_V2_BUFFER_SIZE`, the largest of NVML's texts.
const TEXT: usize = 96;
/// More GPU instances, or placements of one profile, than any device has.
const LIST_MAX: u32 = 64;

/// More programs than compute on one device.
const PROCESSES_MAX: usize = 4096;
/// `NVML_VALUE_NOT_AVAILABLE`
const UNKNOWN_BYTES: u64 = u64::MAX;

/// A status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure(pub Status);

impl Failure {
    pub const INVALID_ARGUMENT: Failure = Failure(2);
    pub const NOT_SUPPORTED: Failure = Failure(3);
    pub const INSUFFICIENT_SIZE: Failure = Failure(7);
    pub const FUNCTION_NOT_FOUND: Failure = Failure(13);
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.0 {
            1 => "not initialised",
            2 => "invalid argument",
            3 => "not supported",
            4 => "no permission",
            6 => "not found",
            7 => "not enough room",
            9 => "the driver is not loaded",
            10 => "timed out",
            12 => "a library is missing",
            13 => "the library lacks the function",
            14 => "its information memory is corrupt",
            15 => "the GPU is lost: it fell off the bus or does not answer",
            16 => "the GPU needs a reset",
            17 => "the operating system refused",
            18 => "library and driver are of different versions",
            19 => "in use",
            23 => "not enough of the device is left",
            _ => "unknown error",
        };
        write!(f, "{word} (NVML error {})", self.0)
    }
}

/// `nvmlMemory_t`
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlUtilization_t`
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlPciInfo_t` as of `_v3`
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

impl PciInfo {
    fn address(&self) -> Option<PciAddress> {
        Some(PciAddress {
            domain: self.domain,
            bus: u8::try_from(self.bus).ok()?,
            device: u8::try_from(self.device).ok()?,
            function: 0,
        })
    }
}

/// `nvmlGpuInstancePlacement_t`
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct InstancePlacement {
    pub start: c_uint,
    pub size: c_uint,
}

/// `nvmlGpuInstanceProfileInfo_v2_t`
#[repr(C)]
struct ProfileInfo {
    version: c_uint,
    id: c_uint,
    is_p2p_supported: c_uint,
    slice_count: c_uint,
    instance_count: c_uint,
    multiprocessor_count: c_uint,
    copy_engine_count: c_uint,
    decoder_count: c_uint,
    encoder_count: c_uint,
    jpeg_count: c_uint,
    ofa_count: c_uint,
    memory_size_mb: c_ulonglong,
    name: [c_char; TEXT],
}

/// The size of the structure, and 2 in the highest byte.
const PROFILE_INFO_V2: c_uint = size_of::<ProfileInfo>() as c_uint | 2 << 24;
const _: () = assert!(PROFILE_INFO_V2 == 0x0200_0098 && size_of::<PciInfo>() == 68);

/// `nvmlGpuInstanceInfo_t`
#[repr(C)]
struct InstanceInfo {
    device: Handle,
    id: c_uint,
    profile_id: c_uint,
    placement: InstancePlacement,
}

/// `nvmlDeviceAttributes_t` as of `_v2`
#[repr(C)]
#[derive(Default)]
struct Attributes {
    multiprocessor_count: c_uint,
    shared_copy_engine_count: c_uint,
    shared_decoder_count: c_uint,
    shared_encoder_count: c_uint,
    shared_jpeg_count: c_uint,
    shared_ofa_count: c_uint,
    gpu_instance_slice_count: c_uint,
    compute_instance_slice_count: c_uint,
    memory_size_mb: c_ulonglong,
}

/// `nvmlProcessInfo_t` as of `_v3`
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct ProcessInfo {
    pid: c_uint,
    used_bytes: c_ulonglong,
    gpu_instance_id: c_uint,
    compute_instance_id: c_uint,
}

/// A kind of GPU instance.
#[derive(Debug, Clone)]
pub struct Profile {
    pub id: u32,
    pub name: String,
    pub slices: u32,
    pub count: u32,
    pub memory_mib: u64,
}

/// A GPU instance that exists.
#[derive(Debug, Clone)]
pub struct Instance {
    pub id: u32,
    pub profile_id: u32,
    pub placement: InstancePlacement,
}

/// What a MIG device has: slices of its GPU instance, of them its own, and memory.
#[derive(Debug, Clone)]
pub struct Share {
    pub instance_slices: u32,
    pub own_slices: u32,
    pub memory_mib: u64,
}

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        struct Functions { $($name: Option<unsafe extern "C" fn($($argument),*) -> Status>,)* }

        impl Functions {
            fn of(library: &Library) -> Functions {
                Functions {
                    $(
                        // SAFETY: the types are those nvml.h declares for this name.
                        $name: unsafe { library.get($symbol) }.ok().map(|symbol| *symbol),
                    )*
                }
            }
        }
    };
}

functions! {
    init = b"nvmlInit_v2" ();
    driver_version = b"nvmlSystemGetDriverVersion" (*mut c_char, c_uint);
    count = b"nvmlDeviceGetCount_v2" (*mut c_uint);
    by_index = b"nvmlDeviceGetHandleByIndex_v2" (c_uint, *mut Handle);
    name = b"nvmlDeviceGetName" (Handle, *mut c_char, c_uint);
    uuid = b"nvmlDeviceGetUUID" (Handle, *mut c_char, c_uint);
    memory = b"nvmlDeviceGetMemoryInfo" (Handle, *mut Memory);
    pci = b"nvmlDeviceGetPciInfo_v3" (Handle, *mut PciInfo);
    minor = b"nvmlDeviceGetMinorNumber" (Handle, *mut c_uint);
    capability = b"nvmlDeviceGetCudaComputeCapability" (Handle, *mut i32, *mut i32);
    ecc_mode = b"nvmlDeviceGetEccMode" (Handle, *mut c_uint, *mut c_uint);
    ecc_errors = b"nvmlDeviceGetTotalEccErrors" (Handle, c_uint, c_uint, *mut c_ulonglong);
    utilization = b"nvmlDeviceGetUtilizationRates" (Handle, *mut Utilization);
    temperature = b"nvmlDeviceGetTemperature" (Handle, c_uint, *mut c_uint);
    power = b"nvmlDeviceGetPowerUsage" (Handle, *mut c_uint);
    energy = b"nvmlDeviceGetTotalEnergyConsumption" (Handle, *mut c_ulonglong);
    processes = b"nvmlDeviceGetComputeRunningProcesses_v3" (Handle, *mut c_uint, *mut ProcessInfo);
    throttle_reasons = b"nvmlDeviceGetCurrentClocksThrottleReasons" (Handle, *mut c_ulonglong);
    common_ancestor = b"nvmlDeviceGetTopologyCommonAncestor" (Handle, Handle, *mut c_uint);
    link_state = b"nvmlDeviceGetNvLinkState" (Handle, c_uint, *mut c_uint);
    link_pci = b"nvmlDeviceGetNvLinkRemotePciInfo_v2" (Handle, c_uint, *mut PciInfo);
    link_type = b"nvmlDeviceGetNvLinkRemoteDeviceType" (Handle, c_uint, *mut c_uint);
    mig_mode = b"nvmlDeviceGetMigMode" (Handle, *mut c_uint, *mut c_uint);
    mig_count = b"nvmlDeviceGetMaxMigDeviceCount" (Handle, *mut c_uint);
    mig_by_index = b"nvmlDeviceGetMigDeviceHandleByIndex" (Handle, c_uint, *mut Handle);
    instance_id = b"nvmlDeviceGetGpuInstanceId" (Handle, *mut c_uint);
    attributes = b"nvmlDeviceGetAttributes_v2" (Handle, *mut Attributes);
    profile = b"nvmlDeviceGetGpuInstanceProfileInfoV" (Handle, c_uint, *mut ProfileInfo);
    placements = b"nvmlDeviceGetGpuInstancePossiblePlacements_v2" (Handle, c_uint, *mut InstancePlacement, *mut c_uint);
    instances = b"nvmlDeviceGetGpuInstances" (Handle, c_uint, *mut Handle, *mut c_uint);
    instance_info = b"nvmlGpuInstanceGetInfo" (Handle, *mut InstanceInfo);
    by_uuid = b"nvmlDeviceGetHandleByUUID" (*const c_char, *mut Handle);
    instance_by_id = b"nvmlDeviceGetGpuInstanceById" (Handle, c_uint, *mut Handle);
    create_instance = b"nvmlDeviceCreateGpuInstanceWithPlacement" (Handle, c_uint, *const InstancePlacement, *mut Handle);
    destroy_instance = b"nvmlGpuInstanceDestroy" (Handle);
    compute_profile = b"nvmlGpuInstanceGetComputeInstanceProfileInfo" (Handle, c_uint, c_uint, *mut ComputeProfile);
    compute_instances = b"nvmlGpuInstanceGetComputeInstances" (Handle, c_uint, *mut Handle, *mut c_uint);
    create_compute = b"nvmlGpuInstanceCreateComputeInstance" (Handle, c_uint, *mut Handle);
    destroy_compute = b"nvmlComputeInstanceDestroy" (Handle);
    compute_id = b"nvmlDeviceGetComputeInstanceId" (Handle, *mut c_uint);
    set_memory_limits = b"nvmlDeviceSetMemoryLimits_v1" (Handle, *mut MemoryLimits);
    clock = b"nvmlDeviceGetClockInfo" (Handle, c_uint, *mut c_uint);
    encoder = b"nvmlDeviceGetEncoderUtilization" (Handle, *mut c_uint, *mut c_uint);
    decoder = b"nvmlDeviceGetDecoderUtilization" (Handle, *mut c_uint, *mut c_uint);
    pcie_replays = b"nvmlDeviceGetPcieReplayCounter" (Handle, *mut c_uint);
    remapped_rows = b"nvmlDeviceGetRemappedRows" (Handle, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint);
    memory_2 = b"nvmlDeviceGetMemoryInfo_v2" (Handle, *mut Memory2);
    gpm_support = b"nvmlGpmQueryDeviceSupport" (Handle, *mut GpmSupport);
    gpm_alloc = b"nvmlGpmSampleAlloc" (*mut Sample);
    gpm_sample = b"nvmlGpmSampleGet" (Handle, Sample);
    gpm_part_sample = b"nvmlGpmMigSampleGet" (Handle, c_uint, Sample);
    gpm_metrics = b"nvmlGpmMetricsGet" (*mut GpmMetrics);
}

/// Calls a function that may be missing.
macro_rules! call {
    ($self:ident . $name:ident ($($argument:expr),*)) => {
        match $self.functions.$name {
            None => Err(Failure::FUNCTION_NOT_FOUND),
            // SAFETY: handles are those NVML gave and it checks them; pointers are to live values of the types that
            // the function writes, and lists and texts come with the room they have.
            Some(function) => match unsafe { function($($argument),*) } {
                0 => Ok(()),
                status => Err(Failure(status)),
            },
        }
    };
}

mod change;
mod measure;

use change::{ComputeProfile, MemoryLimits};
pub use measure::{Active, Looks};
use measure::{GpmMetrics, GpmSupport, Memory2, Sample};

fn chars(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text
        .iter()
        .map(|&letter| letter as u8)
        .take_while(|letter| *letter != 0)
        .collect();
    printable(&bytes)
}

/// The library, initialised. It is not shut down: the process ends instead.
pub struct Nvml {
    functions: Functions,
    _library: Library,
}

type Answer<T> = Result<T, Failure>;

impl Nvml {
    pub fn load(path: &Path) -> Result<Nvml, String> {
        // SAFETY: the library runs its own start-up code, which is why this is a process apart.
        let library =
            unsafe { Library::new(path) }.map_err(|_| format!("{} cannot be loaded", path.display()))?;
        let nvml = Nvml {
            functions: Functions::of(&library),
            _library: library,
        };
        call!(nvml.init()).map_err(|failure| failure.to_string())?;
        Ok(nvml)
    }

    fn text(&self, get: impl Fn(*mut c_char, c_uint) -> Answer<()>) -> Answer<String> {
        let mut text = [0; TEXT];
        get(text.as_mut_ptr(), TEXT as c_uint)?;
        Ok(chars(&text))
    }

    fn number(&self, get: impl Fn(*mut c_uint) -> Answer<()>) -> Answer<u32> {
        let mut number = 0;
        get(&mut number)?;
        Ok(number)
    }

    pub fn driver_version(&self) -> Answer<String> {
        self.text(|text, room| call!(self.driver_version(text, room)))
    }

    pub fn count(&self) -> Answer<u32> {
        self.number(|count| call!(self.count(count)))
    }

    pub fn by_index(&self, index: u32) -> Answer<Handle> {
        let mut handle = std::ptr::null_mut();
        call!(self.by_index(index, &mut handle))?;
        Ok(handle)
    }

    pub fn name(&self, of: Handle) -> Answer<String> {
        self.text(|text, room| call!(self.name(of, text, room)))
    }

    pub fn uuid(&self, of: Handle) -> Answer<String> {
        self.text(|text, room| call!(self.uuid(of, text, room)))
    }

    pub fn memory_bytes(&self, of: Handle) -> Answer<u64> {
        let mut memory = Memory::default();
        call!(self.memory(of, &mut memory))?;
        Ok(memory.total)
    }

    pub fn used_bytes(&self, of: Handle) -> Answer<u64> {
        let mut memory = Memory::default();
        call!(self.memory(of, &mut memory))?;
        Ok(memory.used)
    }

    /// How much of the last moments some kernel ran.
    pub fn busy_percent(&self, of: Handle) -> Answer<u32> {
        let mut rates = Utilization::default();
        call!(self.utilization(of, &mut rates))?;
        Ok(rates.gpu)
    }

    pub fn temperature_c(&self, of: Handle) -> Answer<u32> {
        const GPU: c_uint = 0;
        self.number(|celsius| call!(self.temperature(of, GPU, celsius)))
    }

    pub fn power_mw(&self, of: Handle) -> Answer<u32> {
        self.number(|power| call!(self.power(of, power)))
    }

    /// Programs that compute on the device and what each holds of its memory, as far as the driver tells.
    pub fn processes(&self, of: Handle) -> Answer<Vec<(i32, u64)>> {
        let mut infos = vec![ProcessInfo::default(); PROCESSES_MAX];
        let mut count = PROCESSES_MAX as c_uint;
        call!(self.processes(of, &mut count, infos.as_mut_ptr()))?;
        infos.truncate(count as usize);
        let known = infos.iter().filter(|info| info.used_bytes != UNKNOWN_BYTES);
        Ok(known.map(|info| (info.pid as i32, info.used_bytes)).collect())
    }

    fn large(&self, get: impl Fn(*mut c_ulonglong) -> Answer<()>) -> Answer<u64> {
        let mut number = 0;
        get(&mut number)?;
        Ok(number)
    }

    /// Since the driver was loaded.
    pub fn energy_mj(&self, of: Handle) -> Answer<u64> {
        self.large(|energy| call!(self.energy(of, energy)))
    }

    /// `nvmlClocksThrottleReason…`, as bits.
    pub fn throttle_reasons(&self, of: Handle) -> Answer<u64> {
        self.large(|reasons| call!(self.throttle_reasons(of, reasons)))
    }

    pub fn pci(&self, of: Handle) -> Answer<PciAddress> {
        let mut info = PciInfo::default();
        call!(self.pci(of, &mut info))?;
        info.address().ok_or(Failure::NOT_SUPPORTED)
    }

    pub fn minor(&self, of: Handle) -> Answer<u32> {
        self.number(|minor| call!(self.minor(of, minor)))
    }

    /// Major and minor.
    pub fn capability(&self, of: Handle) -> Answer<(i32, i32)> {
        let (mut major, mut minor) = (0, 0);
        call!(self.capability(of, &mut major, &mut minor))?;
        Ok((major, minor))
    }

    fn mode(&self, get: impl Fn(*mut c_uint, *mut c_uint) -> Answer<()>) -> Answer<(bool, bool)> {
        let (mut current, mut pending) = (0, 0);
        get(&mut current, &mut pending)?;
        Ok((current == 1, pending == 1))
    }

    /// Now, and after the next reset.
    pub fn ecc_mode(&self, of: Handle) -> Answer<(bool, bool)> {
        self.mode(|current, pending| call!(self.ecc_mode(of, current, pending)))
    }

    fn errors(&self, of: Handle, kind: c_uint) -> Answer<u64> {
        const VOLATILE: c_uint = 0;
        self.large(|count| call!(self.ecc_errors(of, kind, VOLATILE, count)))
    }

    /// Errors since the driver was loaded that were corrected.
    pub fn corrected_errors(&self, of: Handle) -> Answer<u64> {
        self.errors(of, 0)
    }

    /// Errors since the driver was loaded that could not be corrected.
    pub fn uncorrected_errors(&self, of: Handle) -> Answer<u64> {
        self.errors(of, 1)
    }

    /// `nvmlGpuTopologyLevel_t`
    pub fn common_ancestor(&self, one: Handle, other: Handle) -> Answer<u32> {
        self.number(|level| call!(self.common_ancestor(one, other, level)))
    }

    pub fn link_is_up(&self, of: Handle, link: u32) -> Answer<bool> {
        self.number(|state| call!(self.link_state(of, link, state)))
            .map(|state| state == 1)
    }

    pub fn link_to(&self, of: Handle, link: u32) -> Answer<PciAddress> {
        let mut info = PciInfo::default();
        call!(self.link_pci(of, link, &mut info))?;
        info.address().ok_or(Failure::NOT_SUPPORTED)
    }

    pub fn link_is_to_switch(&self, of: Handle, link: u32) -> Answer<bool> {
        const SWITCH: u32 = 2;
        self.number(|kind| call!(self.link_type(of, link, kind)))
            .map(|kind| kind == SWITCH)
    }

    /// Now, and after the next reset.
    pub fn mig_mode(&self, of: Handle) -> Answer<(bool, bool)> {
        self.mode(|current, pending| call!(self.mig_mode(of, current, pending)))
    }

    /// The MIG devices that exist.
    pub fn mig_devices(&self, of: Handle) -> Vec<Handle> {
        let most = self.number(|count| call!(self.mig_count(of, count))).unwrap_or(0);
        let by_index = |index| {
            let mut handle = std::ptr::null_mut();
            call!(self.mig_by_index(of, index, &mut handle))
                .ok()
                .map(|()| handle)
        };
        (0..most.min(LIST_MAX)).filter_map(by_index).collect()
    }

    /// The GPU instance a MIG device is in.
    pub fn instance_id(&self, of: Handle) -> Answer<u32> {
        self.number(|id| call!(self.instance_id(of, id)))
    }

    pub fn share(&self, of: Handle) -> Answer<Share> {
        let mut attributes = Attributes::default();
        call!(self.attributes(of, &mut attributes))?;
        Ok(Share {
            instance_slices: attributes.gpu_instance_slice_count,
            own_slices: attributes.compute_instance_slice_count,
            memory_mib: attributes.memory_size_mb,
        })
    }

    /// The kinds of GPU instance this device knows.
    pub fn profiles(&self, of: Handle) -> Vec<Profile> {
        // `NVML_GPU_INSTANCE_PROFILE_COUNT` grows with the library; what it does not know it refuses.
        const KINDS_MAX: c_uint = 32;
        let ask = |kind| {
            let mut info = ProfileInfo {
                version: PROFILE_INFO_V2,
                id: 0,
                is_p2p_supported: 0,
                slice_count: 0,
                instance_count: 0,
                multiprocessor_count: 0,
                copy_engine_count: 0,
                decoder_count: 0,
                encoder_count: 0,
                jpeg_count: 0,
                ofa_count: 0,
                memory_size_mb: 0,
                name: [0; TEXT],
            };
            call!(self.profile(of, kind, &mut info)).ok()?;
            let name = chars(&info.name);
            Some(Profile {
                id: info.id,
                name: name.strip_prefix("MIG ").unwrap_or(&name).to_owned(),
                slices: info.slice_count,
                count: info.instance_count,
                memory_mib: info.memory_size_mb,
            })
        };
        (0..KINDS_MAX).filter_map(ask).collect()
    }

    /// Where on an empty device such an instance may lie.
    pub fn placements(&self, of: Handle, profile: u32) -> Vec<InstancePlacement> {
        let mut list = [InstancePlacement::default(); LIST_MAX as usize];
        let mut count = LIST_MAX;
        match call!(self.placements(of, profile, list.as_mut_ptr(), &mut count)) {
            Ok(()) if count <= LIST_MAX => list[..count as usize].to_vec(),
            _ => Vec::new(),
        }
    }

    /// The instances of one kind that exist; only root is told.
    pub fn instances(&self, of: Handle, profile: u32) -> Answer<Vec<Instance>> {
        let mut list = [std::ptr::null_mut(); LIST_MAX as usize];
        let mut count = LIST_MAX;
        call!(self.instances(of, profile, list.as_mut_ptr(), &mut count))?;
        if count > LIST_MAX {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        let info = |&instance: &Handle| {
            let mut info = InstanceInfo {
                device: std::ptr::null_mut(),
                id: 0,
                profile_id: 0,
                placement: InstancePlacement::default(),
            };
            call!(self.instance_info(instance, &mut info)).ok()?;
            Some(Instance {
                id: info.id,
                profile_id: info.profile_id,
                placement: info.placement,
            })
        };
        let known = list[..count as usize].iter();
        Ok(known
            .filter(|instance| !instance.is_null())
            .filter_map(info)
            .collect())
    }
}
