//! Streams, events, captures and graphs. Each stream is a thread that does what it is given in order.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Instant;

use crate::context::current;
use crate::export::{Code, Handle, INVALID_HANDLE, NOT_READY, SUCCESS, exports, give};
use crate::pool;

type Op = Arc<dyn Fn() + Send + Sync>;

struct Stream {
    context: usize,
    ops: Mutex<Sender<Op>>,
    /// What was taken down instead of done.
    capture: Mutex<Option<Vec<Op>>>,
}

impl Stream {
    fn start() -> Arc<Stream> {
        let (ops, next) = channel::<Op>();
        std::thread::spawn(move || next.into_iter().for_each(|op| op()));
        Arc::new(Stream {
            context: current().unwrap_or(0),
            ops: Mutex::new(ops),
            capture: Mutex::new(None),
        })
    }

    fn give(&self, op: Op) {
        match self.capture.lock().unwrap().as_mut() {
            Some(taken) => taken.push(op),
            None => drop(self.ops.lock().unwrap().send(op)),
        }
    }

    fn wait(&self) {
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let told = done.clone();
        let tell: Op = Arc::new(move || {
            *told.0.lock().unwrap() = true;
            told.1.notify_all();
        });
        let _ = self.ops.lock().unwrap().send(tell);
        let waited = done.0.lock().unwrap();
        drop(done.1.wait_while(waited, |done| !*done).unwrap());
    }
}

struct Table<T> {
    next: usize,
    all: HashMap<usize, Arc<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            next: 0,
            all: HashMap::new(),
        }
    }
}

impl<T> Table<T> {
    fn add(&mut self, value: Arc<T>) -> usize {
        self.next += 16;
        let handle = self.next + 0x1000;
        self.all.insert(handle, value);
        handle
    }
}

static STREAMS: Mutex<Option<Table<Stream>>> = Mutex::new(None);
static EVENTS: Mutex<Option<Table<Event>>> = Mutex::new(None);
static GRAPHS: Mutex<Option<Table<Vec<Op>>>> = Mutex::new(None);

fn default_stream() -> Arc<Stream> {
    static DEFAULT: OnceLock<Arc<Stream>> = OnceLock::new();
    DEFAULT.get_or_init(Stream::start).clone()
}

thread_local! {
    static OWN: RefCell<Option<Arc<Stream>>> = const { RefCell::new(None) };
}

fn stream(handle: Handle) -> Option<Arc<Stream>> {
    match handle as usize {
        0 | 1 => Some(default_stream()),
        2 => Some(OWN.with_borrow_mut(|own| own.get_or_insert_with(Stream::start).clone())),
        handle => STREAMS.lock().unwrap().as_ref()?.all.get(&handle).cloned(),
    }
}

/// Gives a stream something to do.
pub fn enqueue(handle: Handle, op: impl Fn() + Send + Sync + 'static) -> Code {
    match stream(handle) {
        Some(stream) => {
            stream.give(Arc::new(op));
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

/// Waits until every stream has done what it was given.
pub fn wait_for_all() {
    default_stream().wait();
    let all: Vec<Arc<Stream>> = {
        let streams = STREAMS.lock().unwrap();
        streams
            .iter()
            .flat_map(|table| table.all.values().cloned())
            .collect()
    };
    all.iter().for_each(|stream| stream.wait());
}

struct Event {
    /// Recorded and not reached yet; when it was reached last.
    state: Mutex<(u32, Option<Instant>)>,
    reached: Condvar,
}

fn event(handle: Handle) -> Option<Arc<Event>> {
    EVENTS
        .lock()
        .unwrap()
        .as_ref()?
        .all
        .get(&(handle as usize))
        .cloned()
}

fn record(of: Handle, on: Handle) -> Code {
    let (Some(event), Some(stream)) = (event(of), stream(on)) else {
        return INVALID_HANDLE;
    };
    event.state.lock().unwrap().0 += 1;
    stream.give(Arc::new(move || {
        let mut state = event.state.lock().unwrap();
        *state = (state.0 - 1, Some(Instant::now()));
        event.reached.notify_all();
    }));
    SUCCESS
}

fn wait(event: &Event) {
    let state = event.state.lock().unwrap();
    drop(event.reached.wait_while(state, |state| state.0 > 0).unwrap());
}

fn wait_for_stream(handle: Handle) -> Code {
    match stream(handle) {
        Some(stream) => {
            stream.wait();
            pool::waited();
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

fn end_capture(on: Handle, to: *mut Handle) -> Code {
    let taken = stream(on).and_then(|stream| stream.capture.lock().unwrap().take());
    match taken {
        Some(ops) => {
            let handle = GRAPHS.lock().unwrap().get_or_insert_default().add(Arc::new(ops));
            give(to, handle as Handle)
        }
        None => INVALID_HANDLE,
    }
}

fn launch(graph: Handle, on: Handle) -> Code {
    let graph = GRAPHS
        .lock()
        .unwrap()
        .as_ref()
        .and_then(|table| table.all.get(&(graph as usize)).cloned());
    let (Some(graph), Some(stream)) = (graph, stream(on)) else {
        return INVALID_HANDLE;
    };
    graph.iter().for_each(|op| stream.give(op.clone()));
    SUCCESS
}

fn capturing(on: Handle) -> u32 {
    stream(on).map_or(0, |stream| u32::from(stream.capture.lock().unwrap().is_some()))
}

fn remove<T>(table: &Mutex<Option<Table<T>>>, handle: Handle) -> Code {
    match table
        .lock()
        .unwrap()
        .as_mut()
        .and_then(|table| table.all.remove(&(handle as usize)))
    {
        Some(_) => SUCCESS,
        None => INVALID_HANDLE,
    }
}

type HostFunction = extern "C" fn(Handle);

exports! {
    cuStreamCreate(to: *mut Handle, _flags: u32) {
        let handle = STREAMS.lock().unwrap().get_or_insert_default().add(Stream::start());
        give(to, handle as Handle)
    }
    cuStreamCreateWithPriority(to: *mut Handle, flags: u32, _priority: i32) { cuStreamCreate(to, flags) }
    cuStreamDestroy_v2(handle: Handle) { remove(&STREAMS, handle) }
    cuStreamSynchronize(handle: Handle) { wait_for_stream(handle) }
    cuStreamSynchronize_ptsz(handle: Handle) {
        wait_for_stream(if handle.is_null() { 2 as Handle } else { handle })
    }
    cuStreamQuery(handle: Handle) { wait_for_stream(handle) }
    cuStreamGetCtx(handle: Handle, to: *mut Handle) {
        match stream(handle) {
            Some(stream) => give(to, stream.context as Handle),
            None => INVALID_HANDLE,
        }
    }
    cuStreamWaitEvent(on: Handle, of: Handle, _flags: u32) {
        match event(of) {
            Some(event) => enqueue(on, move || wait(&event)),
            None => INVALID_HANDLE,
        }
    }
    cuCtxSynchronize() {
        wait_for_all();
        pool::waited();
        SUCCESS
    }
    cuLaunchHostFunc(on: Handle, function: HostFunction, data: usize) {
        enqueue(on, move || function(data as Handle))
    }
    cuEventCreate(to: *mut Handle, _flags: u32) {
        let fresh = Arc::new(Event { state: Mutex::new((0, None)), reached: Condvar::new() });
        let handle = EVENTS.lock().unwrap().get_or_insert_default().add(fresh);
        give(to, handle as Handle)
    }
    cuEventDestroy_v2(handle: Handle) { remove(&EVENTS, handle) }
    cuEventRecord(of: Handle, on: Handle) { record(of, on) }
    cuEventQuery(handle: Handle) {
        match event(handle) {
            Some(event) if event.state.lock().unwrap().0 > 0 => NOT_READY,
            Some(_) => SUCCESS,
            None => INVALID_HANDLE,
        }
    }
    cuEventSynchronize(handle: Handle) {
        match event(handle) {
            Some(event) => {
                wait(&event);
                pool::waited();
                SUCCESS
            }
            None => INVALID_HANDLE,
        }
    }
    cuEventElapsedTime(to: *mut f32, begun: Handle, ended: Handle) {
        let reached = |handle| event(handle).and_then(|event| {
            let state = event.state.lock().unwrap();
            state.1.filter(|_| state.0 == 0)
        });
        match (reached(begun), reached(ended)) {
            (Some(begun), Some(ended)) => give(to, ended.saturating_duration_since(begun).as_secs_f32() * 1e3),
            _ => NOT_READY,
        }
    }
    cuThreadExchangeStreamCaptureMode(mode: *mut i32) { give(mode, 0) }
    cuStreamBeginCapture_v2(on: Handle, _mode: u32) {
        match stream(on) {
            Some(stream) => {
                *stream.capture.lock().unwrap() = Some(Vec::new());
                SUCCESS
            }
            None => INVALID_HANDLE,
        }
    }
    cuStreamEndCapture(on: Handle, graph: *mut Handle) { end_capture(on, graph) }
    cuStreamIsCapturing(on: Handle, status: *mut u32) { give(status, capturing(on)) }
    cuGraphInstantiateWithFlags(to: *mut Handle, graph: Handle, _flags: u64) { give(to, graph) }
    cuGraphLaunch(graph: Handle, on: Handle) { launch(graph, on) }
    cuGraphLaunch_ptsz(graph: Handle, on: Handle) { launch(graph, on) }
    cuGraphExecDestroy(_graph: Handle) { SUCCESS }
    cuGraphAddMemAllocNode(_node: Handle, _graph: Handle, _after: Handle, _count: usize, _parameters: Handle) {
        SUCCESS
    }
}
