//! Whose turn it is: a test that measures shares of the device runs beside no other agent, for on few processors it
//! would measure those of its neighbours in the test run.

use std::sync::Mutex;
use std::time::Duration;

/// Held for as long as the test has an agent.
pub struct Turn {
    test: String,
    alone: bool,
}

struct Machine {
    /// Names of tests, one entry for each turn.
    beside: Vec<String>,
    alone: Vec<String>,
    wanted: Vec<String>,
}

static MACHINE: Mutex<Machine> = Mutex::new(Machine {
    beside: Vec::new(),
    alone: Vec::new(),
    wanted: Vec::new(),
});

/// Beside others that do not mind either.
pub async fn beside() -> Turn {
    let test = name();
    wait(|machine| {
        let none_wanted = machine.wanted.is_empty() || machine.beside.contains(&test);
        let free = only(&machine.alone, &test) && (none_wanted || machine.alone.contains(&test));
        if free {
            machine.beside.push(test.clone());
        }
        free
    })
    .await;
    Turn { test, alone: false }
}

/// With nobody beside; what the same test has already does not count.
pub async fn alone() -> Turn {
    let test = name();
    MACHINE.lock().unwrap().wanted.push(test.clone());
    wait(|machine| {
        let free = only(&machine.alone, &test) && only(&machine.beside, &test);
        if free {
            remove(&mut machine.wanted, &test);
            machine.alone.push(test.clone());
        }
        free
    })
    .await;
    Turn { test, alone: true }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut machine = MACHINE.lock().unwrap();
        let list = if self.alone {
            &mut machine.alone
        } else {
            &mut machine.beside
        };
        remove(list, &self.test);
    }
}

async fn wait(mut free: impl FnMut(&mut Machine) -> bool) {
    while !free(&mut MACHINE.lock().unwrap()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn only(tests: &[String], test: &str) -> bool {
    tests.iter().all(|other| other == test)
}

fn remove(tests: &mut Vec<String>, test: &str) {
    if let Some(at) = tests.iter().position(|other| other == test) {
        tests.swap_remove(at);
    }
}

/// The harness names each test's thread after it.
fn name() -> String {
    std::thread::current().name().unwrap_or("main").to_owned()
}
