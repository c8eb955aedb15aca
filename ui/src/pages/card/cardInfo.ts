// What the server knows about one card, and what every tab of its page is given.

import type { Card } from "../../api/types";

export type CardInfo = Card;

export interface CardTabProps {
  run: string;
  card: CardInfo;
}
