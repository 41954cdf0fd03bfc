//! All objects of the slice, each once, in an order in which they can be made: what an object needs comes before it.
//! An object may be held only by another, so each is followed to what it needs.

use std::collections::HashSet;
use std::sync::Arc;

use crate::object::{
    Context, Event, Kernel, Made, Memory, Object, Origin, Program, Queue, Sampler, Shape, lock,
};

#[derive(Default)]
pub struct Inventory {
    pub contexts: Vec<Arc<Context>>,
    pub queues: Vec<Arc<Queue>>,
    pub memory: Vec<Arc<Memory>>,
    pub samplers: Vec<Arc<Sampler>>,
    pub programs: Vec<Arc<Program>>,
    pub kernels: Vec<Arc<Kernel>>,
    pub events: Vec<Arc<Event>>,
    seen: HashSet<usize>,
}

impl Inventory {
    pub fn of(objects: impl IntoIterator<Item = Object>) -> Inventory {
        let mut all = Inventory::default();
        for object in objects {
            match object {
                Object::Context(context) => all.context(&context),
                Object::Queue(queue) => all.queue(&queue),
                Object::Memory(memory) => all.memory(&memory),
                Object::Sampler(sampler) => all.sampler(sampler),
                Object::Program(program) => all.program(&program),
                Object::Kernel(kernel) => all.kernel(kernel),
                Object::Event(event) => all.event(event),
            }
        }
        all
    }

    fn is_new<T>(&mut self, object: &Arc<T>) -> bool {
        self.seen.insert(Arc::as_ptr(object) as usize)
    }

    fn context(&mut self, context: &Arc<Context>) {
        if self.is_new(context) {
            self.contexts.push(context.clone());
        }
    }

    fn queue(&mut self, queue: &Arc<Queue>) {
        if self.is_new(queue) {
            self.context(&queue.context);
            self.queues.push(queue.clone());
        }
    }

    fn memory(&mut self, memory: &Arc<Memory>) {
        if self.is_new(memory) {
            self.context(&memory.context);
            if let Some(of) = memory.made_from() {
                self.memory(of);
            }
            self.memory.push(memory.clone());
        }
    }

    fn sampler(&mut self, sampler: Arc<Sampler>) {
        if self.is_new(&sampler) {
            self.context(&sampler.context);
            self.samplers.push(sampler);
        }
    }

    fn program(&mut self, program: &Arc<Program>) {
        if self.is_new(program) {
            self.context(&program.context);
            if let Origin::Linked(_, _, parts) = &program.origin {
                parts.iter().for_each(|part| self.program(part));
            }
            let made = lock(&program.made).clone();
            if let Made::Compiled(_, _, headers) = made {
                headers.iter().for_each(|(_, header)| self.program(header));
            }
            self.programs.push(program.clone());
        }
    }

    fn kernel(&mut self, kernel: Arc<Kernel>) {
        if self.is_new(&kernel) {
            self.program(&kernel.program);
            self.kernels.push(kernel);
        }
    }

    fn event(&mut self, event: Arc<Event>) {
        if self.is_new(&event) {
            if let Some(context) = &event.context {
                self.context(context);
            }
            if let Some(queue) = &event.queue {
                self.queue(queue);
            }
            self.events.push(event);
        }
    }

    /// Bytes of device memory that are nobody's part.
    pub fn bytes(&self) -> u64 {
        let roots = self.memory.iter().filter(|memory| memory.made_from().is_none());
        roots.map(|memory| memory.bytes).sum()
    }
}

impl Memory {
    /// The memory this shares its bytes with.
    pub fn made_from(&self) -> Option<&Arc<Memory>> {
        match &self.shape {
            Shape::Buffer => None,
            Shape::Part { of, .. } => Some(of),
            Shape::Image(image) => image.of.as_ref(),
        }
    }
}
