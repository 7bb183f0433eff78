// A real browser, held to what must be true of each view: no request to another origin, no script
// that fails or is refused, no violation of the policy.

import { createRequire } from "node:module";
import { join } from "node:path";

const tools = createRequire(join(process.env.PEERAGE_PAGE_TOOLS, "package.json"));
const { chromium } = tools("playwright-core");
export const axe = tools.resolve("axe-core/axe.min.js");

export async function launch() {
  const { PEERAGE_CHROMIUM, PEERAGE_CHROMIUM_LIBRARIES, PEERAGE_PAGE_TOOLS } = process.env;
  // What it keeps of itself lies beside it, not with the user.
  const home = join(PEERAGE_PAGE_TOOLS, "home");
  const own = { HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home, XDG_DATA_HOME: home };
  return chromium.launch({
    executablePath: PEERAGE_CHROMIUM,
    // Its sandbox needs what containers do not give; it shows our own pages alone.
    args: ["--no-sandbox"],
    env: { ...process.env, ...own, LD_LIBRARY_PATH: PEERAGE_CHROMIUM_LIBRARIES },
  });
}

// A user's page. `allowed` are texts of the console that a story provokes.
export async function open(
  browser,
  nginx,
  { path = "/dashboard/", hash = "#/", allowed = [], ...options } = {},
) {
  const context = await browser.newContext({
    locale: "en-GB",
    timezoneId: "Asia/Kolkata",
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(15000);
  page.wrongs = [];
  page.dialogs = 0;
  const wrong = (said) => {
    if (!allowed.some((text) => said.includes(text))) page.wrongs.push(said);
  };
  page.on("pageerror", (error) => wrong(`error: ${error.message}`));
  page.on("console", (message) => {
    const said = `${message.text()} ${message.location().url ?? ""}`;
    // A status that is no 2xx is said there, too; the page asks for what may not be there.
    const asked = /status of (404|405).*\/v1\/(routes|batch)\?/.test(said);
    if (["error", "warning"].includes(message.type()) && !asked) wrong(`console: ${said}`);
  });
  page.on("dialog", (dialog) => {
    wrong(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(`${nginx.url}/`)) wrong(`request: ${request.url()}`);
  });
  if (process.env.PEERAGE_UI) {
    // Files of the tree in place of those in the module, to try them without a build.
    await page.route(/\/dashboard\/[a-z]+\.(js|css)$/, (route) => {
      const name = new URL(route.request().url()).pathname.split("/").pop();
      return route.fulfill({ path: join(process.env.PEERAGE_UI, name) });
    });
  }
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  await page.goto(`${nginx.url}${path}${hash}`);
  return page;
}

// Ends a user's page; what was wrong fails the story.
export async function close(page) {
  await page.context().close();
  if (page.wrongs.length) throw new Error(page.wrongs.join("\n"));
}
