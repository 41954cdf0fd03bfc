//! `top` on a terminal: asks the server each second, draws, and takes keys. The terminal is given back as it was
//! however this ends: by key, error, signal or panic.

use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Drawn, Span};
use ratatui::widgets::Paragraph;
use tenure_api::client::Client;
use tenure_api::v1::gpu::DeviceView;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::frame::{self, Line, Order, Wanted};
use crate::gpu;
use crate::moment::now;
use crate::output::{Output, Paint};
use crate::refusal::Failure;

const PERIOD: Duration = Duration::from_secs(1);
/// A key is looked for this often, so that the thread which does ends soon after the screen.
const KEY_PATIENCE: Duration = Duration::from_millis(100);

/// The terminal, taken; given back when dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> std::io::Result<Screen> {
        // Also gives it back on a panic, before the message is printed.
        ratatui::try_init().map(Screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What is on the screen.
struct Top<'a> {
    wanted: &'a mut Wanted,
    devices: Vec<DeviceView>,
    /// Why what is shown is not of now.
    trouble: Option<String>,
    /// A filter is being typed.
    typing: bool,
    scrolled: usize,
    colour: bool,
}

enum Next {
    Draw,
    Quit,
}

pub async fn run(client: &Client, out: &Output, wanted: &mut Wanted) -> Result<(), Failure> {
    let mut top = Top {
        wanted,
        // Before the terminal is taken: a refusal is said as ever.
        devices: gpu::devices(client, None).await?,
        trouble: None,
        typing: false,
        scrolled: 0,
        colour: out.colour,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut screen = Screen::take()?;
    let mut events = listen();
    // The server is asked beside the drawing: while it does not answer, keys do.
    let (answers, mut answered) = mpsc::channel(1);
    let (runtime, asker) = (tokio::runtime::Handle::current(), client.clone());
    std::thread::spawn(move || runtime.block_on(ask(asker, answers)));
    loop {
        screen.0.draw(|frame| top.draw(frame))?;
        let next = tokio::select! {
            event = events.recv() => match event {
                Some(event) => top.take(&event),
                None => Next::Quit,
            },
            answer = answered.recv() => match answer {
                Some(Ok(devices)) => {
                    (top.devices, top.trouble) = (devices, None);
                    Next::Draw
                }
                Some(Err(failure @ Failure::Unreachable { .. })) => {
                    top.trouble = Some(failure.text(false).lines().next().unwrap_or_default().to_owned());
                    Next::Draw
                }
                Some(Err(failure)) => return Err(failure),
                None => Next::Quit,
            },
            _ = terminate.recv() => Next::Quit,
            _ = hangup.recv() => Next::Quit,
            _ = interrupt.recv() => Next::Quit,
        };
        if matches!(next, Next::Quit) {
            return Ok(());
        }
    }
}

async fn ask(client: Client, answers: mpsc::Sender<Result<Vec<DeviceView>, Failure>>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        if answers.send(gpu::devices(&client, None).await).await.is_err() {
            return;
        }
    }
}

/// Keys and changes of size, read by a thread that may wait.
fn listen() -> mpsc::Receiver<Event> {
    use ratatui::crossterm::event;
    let (sender, receiver) = mpsc::channel(64);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let read = match event::poll(KEY_PATIENCE) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            match read {
                Ok(event) => {
                    if sender.blocking_send(event).is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    });
    receiver
}

impl Top<'_> {
    fn take(&mut self, event: &Event) -> Next {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key),
            _ => Next::Draw,
        }
    }

    fn key(&mut self, key: KeyEvent) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if matches!(key.code, KeyCode::Char('c' | 'd')) {
                Next::Quit
            } else {
                Next::Draw
            };
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.wanted.filter.clear();
                }
                KeyCode::Backspace => drop(self.wanted.filter.pop()),
                KeyCode::Char(letter) if self.wanted.filter.len() < 100 => self.wanted.filter.push(letter),
                _ => {}
            }
            self.scrolled = 0;
            return Next::Draw;
        }
        match key.code {
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('v') => self.wanted.order = Order::Vram,
            KeyCode::Char('c') => self.wanted.order = Order::Compute,
            KeyCode::Char('n') => self.wanted.order = Order::Name,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.wanted.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled += 1,
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled += 10,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(10),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        Next::Draw
    }

    fn draw(&mut self, screen: &mut ratatui::Frame<'_>) {
        let [head, body, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)])
                .areas(screen.area());
        let frame = frame::of(&self.devices, self.wanted, screen.area().width, now());
        let lines = |lines: &[Line]| lines.iter().map(|line| self.drawn(line)).collect::<Vec<_>>();
        screen.render_widget(Paragraph::new(lines(&frame.head)), head);
        let room = usize::from(body.height);
        let scrolled = self.scrolled.min(frame.body.len().saturating_sub(room));
        screen.render_widget(Paragraph::new(lines(&frame.body[scrolled..])), body);
        screen.render_widget(Paragraph::new(self.drawn(&self.foot())), foot);
        self.scrolled = scrolled;
    }

    fn foot(&self) -> Line {
        let said = if self.typing {
            format!("/{}▏", self.wanted.filter)
        } else if let Some(trouble) = &self.trouble {
            trouble.clone()
        } else {
            let filter = if self.wanted.filter.is_empty() {
                "/ filter".to_owned()
            } else {
                format!("filter: {}  Esc clear", self.wanted.filter)
            };
            format!("sort: v memory  c compute  n name   {filter}   q quit")
        };
        let paint = if self.trouble.is_some() && !self.typing {
            Paint::Bad
        } else {
            Paint::Dim
        };
        Line(vec![(crate::safe::safe(&said).into_owned(), paint)])
    }

    fn drawn(&self, line: &Line) -> Drawn<'static> {
        let spans = line
            .0
            .iter()
            .map(|(text, paint)| Span::styled(text.clone(), style(*paint, self.colour)));
        Drawn::from(spans.collect::<Vec<_>>())
    }
}

fn style(paint: Paint, colour: bool) -> Style {
    let plain = Style::new();
    match paint {
        _ if !colour => plain,
        Paint::Plain => plain,
        Paint::Good => plain.fg(Color::Green),
        Paint::Busy => plain.fg(Color::Cyan),
        Paint::Bad => plain.fg(Color::Red),
        Paint::Dim => plain.add_modifier(Modifier::DIM),
        Paint::Bold => plain.add_modifier(Modifier::BOLD),
    }
}
