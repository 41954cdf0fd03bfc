//! `tenure top`: devices and slices live, each slice's memory and compute against its limit.
//!
//! `frame` turns devices into lines, alike for a terminal and for plain text; `screen` shows them and takes keys.

mod frame;
mod screen;

use std::io::IsTerminal;

use clap::Args as ClapArgs;

use crate::context::Context;
use crate::gpu;
use crate::moment::now;
use crate::output::Form;
use crate::refusal::Failure;
use frame::{Order, Wanted};

/// How wide plain text is that goes to no terminal.
const PLAIN_WIDTH: u16 = 100;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Keys: v by memory in use, c by compute in use, n by name; / filter, Esc clear it; arrows, PgUp and PgDn \
                  scroll; q quit."
)]
pub struct Args {
    /// Print it once and end; also when the output is not a terminal
    #[arg(long)]
    once: bool,
    /// In which order
    #[arg(long, value_enum, default_value = "name")]
    sort: Order,
    /// Only devices, holders and jobs whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let client = context.client()?;
    let mut wanted = Wanted {
        order: args.sort,
        filter: args.filter,
    };
    let tabular = matches!(context.out.form, Form::Table | Form::Wide);
    if tabular && !args.once && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return screen::run(&client, &context.out, &mut wanted).await;
    }
    let devices = gpu::devices(&client, None).await?;
    if !tabular {
        return context.out.list(
            &devices,
            |device| device.gpu.id.to_string(),
            "",
            |_| unreachable!("not a table"),
        );
    }
    let width = context.out.width.unwrap_or(PLAIN_WIDTH);
    let frame = frame::of(&devices, &wanted, width, now());
    let lines = frame.head.iter().chain(&frame.body);
    let text: String = lines.map(|line| line.plain(&context.out)).collect();
    context.out.text(&text)
}
