// A link inside the pages: a real address, followed without loading anything again.
import type { ComponentChildren } from "preact";
import { useRouter } from "./router";

interface LinkProps {
  to: string;
  current?: boolean;
  class?: string | undefined;
  title?: string | undefined;
  children: ComponentChildren;
}

export function Link({ to, current, class: name, title, children }: LinkProps) {
  const { go } = useRouter();
  const follow = (event: MouseEvent): void => {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    event.preventDefault();
    go(to);
  };
  return (
    <a href={to} class={name} title={title} aria-current={current ? "page" : undefined} onClick={follow}>
      {children}
    </a>
  );
}
